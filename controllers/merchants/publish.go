package merchants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	if err := r.write(ctx, p); err != nil {
		return fmt.Errorf("publish ConfigMap %s: %w", client.ObjectKeyFromObject(p.publish), err)
	}
	logf.FromContext(ctx).Info("published the merchant", "configMap", p.publish.Name)
	r.Events.Eventf(p.merchant, nil, corev1.EventTypeNormal, v1alpha1.ReasonPublished, "Publish",
		"Told the data plane about the Merchant, state %s", p.merchant.Spec.State)
	return nil
}

func (r *Reconciler) write(ctx context.Context, p plan) error {
	if p.published == nil {
		return r.Client.Create(ctx, p.publish, client.FieldOwner(subject.FieldOwner))
	}
	p.publish.ResourceVersion = p.published.ResourceVersion
	return r.Client.Update(ctx, p.publish, client.FieldOwner(subject.FieldOwner))
}
