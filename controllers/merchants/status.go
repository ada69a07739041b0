package merchants

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// report ends a pass: one status write, if anything changed, and an event if it is news.
func (r *Reconciler) report(ctx context.Context, p plan, failure error) (reconcile.Result, error) {
	if errors.Is(failure, subject.ErrGone) || subject.LostRace(failure) {
		return subject.Settle(failure)
	}
	outcome := subject.Ready("The data plane knows the Merchant in its present form")
	if failure != nil {
		outcome = subject.Failed(failure)
	}
	if !outcome.IsReady() && outcome.News(p.merchant.Status.Conditions) {
		r.Events.Eventf(p.merchant, nil, corev1.EventTypeWarning, outcome.Reason, "Publish", "%s", outcome.Message)
	}
	return subject.Settle(errors.Join(failure, r.writeStatus(ctx, p.merchant, outcome)))
}

func (r *Reconciler) writeStatus(ctx context.Context, merchant *v1alpha1.Merchant, outcome subject.Outcome) error {
	want := v1alpha1.MerchantStatus{
		ObservedGeneration: merchant.Generation,
		MerchantID:         published.ShownMerchantID(published.ID(merchant.UID)),
		Conditions:         outcome.Conditions(merchant.Status.Conditions, merchant.Generation, r.Clock.Now()),
	}
	if apiequality.Semantic.DeepEqual(want, merchant.Status) {
		return nil
	}
	// The UID keeps the status from an object that was created under the same name since.
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithUID(merchant.UID).
		WithStatus(v1alpha1ac.MerchantStatus().
			WithObservedGeneration(want.ObservedGeneration).
			WithMerchantID(want.MerchantID).
			WithConditions(subject.Apply(want.Conditions)...))
	err := r.Client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(subject.FieldOwner))
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
