package merchants

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// gather does all reading. The facts name the Merchant also when there is an error. The merchant's
// copy of the signing secret is always read from the API server: no cache holds it, so that no other
// plaintext of a tenant comes into memory with it.
func (r *Reconciler) gather(ctx context.Context, from client.Reader, merchant *v1alpha1.Merchant) (facts, error) {
	f := facts{now: r.Clock.Now().UTC(), merchant: merchant, namespace: r.CredentialsNamespace}
	id := published.ID(merchant.UID)
	var err error
	if f.published, err = read(ctx, from, f.namespace, published.MerchantName(id), new(corev1.ConfigMap)); err != nil {
		return f, err
	}
	if f.published != nil {
		_, err := published.DecodeMerchant(f.published)
		f.newer = errors.Is(err, published.ErrNewerVersion)
	}
	if f.signing, err = read(ctx, from, f.namespace, published.WebhookName(id), new(corev1.Secret)); err != nil {
		return f, err
	}
	if f.signing != nil {
		record, err := published.DecodeWebhook(f.signing)
		f.newerSigning = errors.Is(err, published.ErrNewerVersion)
		if err == nil && record.Source.UID == merchant.UID {
			f.record = &record
		}
	}
	if f.delivered, err = r.Secrets.Of(ctx, merchant); err != nil || f.targetName() == "" {
		return f, err
	}
	target, err := read(ctx, r.Live, merchant.Namespace, f.targetName(), new(corev1.Secret))
	switch {
	case err != nil || target == nil:
		return f, err
	case deliveries.OwnedBy(target, merchant.UID):
		f.target = target
	default:
		f.targetTaken = true
	}
	return f, nil
}

// read returns the object that it has read into; the zero T, nil: there is none.
func read[T client.Object](ctx context.Context, from client.Reader, namespace, name string, into T) (T, error) {
	var none T
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch err := from.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}
