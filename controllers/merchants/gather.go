package merchants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// facts are all that a decision about a Merchant needs.
type facts struct {
	merchant  *v1alpha1.Merchant
	namespace string            // of published objects
	published *corev1.ConfigMap // nil: none
}

// gather does all reading. The facts name the Merchant also when there is an error.
func (r *Reconciler) gather(ctx context.Context, from client.Reader, merchant *v1alpha1.Merchant) (facts, error) {
	f := facts{merchant: merchant, namespace: r.CredentialsNamespace}
	key := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.MerchantName(published.ID(merchant.UID))}
	configMap := new(corev1.ConfigMap)
	switch err := from.Get(ctx, key, configMap); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return f, fmt.Errorf("read ConfigMap %s: %w", key, err)
	default:
		f.published = configMap
	}
	return f, nil
}
