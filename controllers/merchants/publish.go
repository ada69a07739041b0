package merchants

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// publish writes the ConfigMap of the plan, if there is one.
func (r *Reconciler) publish(ctx context.Context, p plan) error {
	if p.publish == nil {
		return nil
	}
	if p.published != nil {
		p.publish.ResourceVersion = p.published.ResourceVersion
	}
	if err := subject.Write(ctx, r.Client, p.publish); err != nil {
		return fmt.Errorf("publish ConfigMap %s: %w", client.ObjectKeyFromObject(p.publish), err)
	}
	logf.FromContext(ctx).Info("published the merchant", "configMap", p.publish.Name)
	r.tell(p.merchant, v1alpha1.ReasonPublished, actionPublish, "Told the data plane about the Merchant, state %s", p.merchant.Spec.State)
	return nil
}
