package merchants

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// confirm reads the facts again from the API server.
func (r *Reconciler) confirm(ctx context.Context, seen *v1alpha1.Merchant) (facts, error) {
	merchant, err := subject.Confirm(ctx, r.Live, seen)
	if err != nil {
		return facts{merchant: seen}, err
	}
	f, err := r.gather(ctx, r.Live, merchant)
	if err != nil {
		return f, err
	}
	f.delivered, err = r.stillDelivered(ctx, merchant, f.delivered)
	return f, err
}

// stillDelivered returns those of the Secrets that are there and are still the Merchant's.
func (r *Reconciler) stillDelivered(ctx context.Context, merchant *v1alpha1.Merchant, seen []metav1.ObjectMeta) ([]metav1.ObjectMeta, error) {
	var there []metav1.ObjectMeta
	for _, secret := range seen {
		now, err := r.Secrets.Look(ctx, secret.Namespace, secret.Name)
		if err != nil {
			return nil, err
		}
		if now != nil && deliveries.OwnedBy(now, merchant.UID) {
			there = append(there, now.ObjectMeta)
		}
	}
	return there, nil
}
