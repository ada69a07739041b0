package merchants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// apply does what the plan says and returns the facts as they are then. The merchant's state comes
// first, for nothing may keep a Merchant from being suspended. The signing secret is published before
// it is delivered: the published one is the truth, and a pass that ends in between leaves a copy to
// be written by the next.
func (r *Reconciler) apply(ctx context.Context, p plan) (facts, error) {
	f := p.facts
	if err := r.publish(ctx, p); err != nil {
		return f, err
	}
	if p.sign != keepSigning {
		if err := r.sign(ctx, &f, p); err != nil {
			return f, err
		}
	}
	if p.deliver {
		if err := r.deliver(ctx, &f); err != nil {
			return f, err
		}
	}
	for _, secret := range p.remove {
		preconditions := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
		if err := r.Secrets.Delete(ctx, &secret.ObjectMeta, preconditions); err != nil {
			return f, err
		}
		r.tell(f.merchant, reasonDeliveryRemoved, actionDeliver, "Removed Secret %s: %s", secret.Name, secret.why)
	}
	return f, nil
}

// deliver writes the merchant's copy of the secret in force.
func (r *Reconciler) deliver(ctx context.Context, f *facts) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.merchant.Namespace, Name: f.targetName()},
		Type:       corev1.SecretTypeOpaque,
	}
	if f.target != nil {
		secret = f.target.DeepCopy()
	}
	secret.Data = deliveredData(*f.record)
	if err := r.Secrets.Deliver(ctx, f.merchant, deliveries.LabelWebhook, secret); err != nil {
		return err
	}
	f.target = secret
	r.tell(f.merchant, reasonDelivered, actionDeliver, "Wrote the signing secret of the webhook into Secret %s", secret.Name)
	return nil
}

// withdrawSigning deletes the published signing secret: without it nothing can be signed any more.
func (r *Reconciler) withdrawSigning(ctx context.Context, f *facts) error {
	if f.signing == nil {
		return nil
	}
	if err := r.Secrets.Delete(ctx, f.signing, client.Preconditions{UID: &f.signing.UID}); err != nil {
		return fmt.Errorf("withdraw %s: %w", published.WebhookName(published.ID(f.merchant.UID)), err)
	}
	f.signing, f.record = nil, nil
	return nil
}
