package merchants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// Reasons of events that are not reasons of conditions.
const (
	reasonSigningIssued   = "SigningSecretIssued"
	reasonSigningRotated  = "SigningSecretRotated"
	reasonSigningLost     = "SigningSecretLost"
	reasonDelivered       = "SigningSecretDelivered"
	reasonDeliveryRemoved = "DeliveryRemoved"
	reasonWebhookRemoved  = "WebhookRemoved"
)

// The actions of events.
const (
	actionPublish = "Publish"
	actionSign    = "Sign"
	actionDeliver = "Deliver"
)

// report emits an event if the outcome changed, and writes the status if it changed. It returns the time until the next
// check is due, and the failure with its own.
func (r *Reconciler) report(ctx context.Context, f facts, failure error) (time.Duration, error) {
	if reconciler.Superseded(failure) {
		return 0, failure
	}
	outcome := outcomeFor(f)
	if failure != nil {
		outcome = conditions.Failed(failure)
	}
	r.warn(f.merchant, outcome)
	return nextCheck(f, outcome), errors.Join(failure, r.writeStatus(ctx, f.merchant, newStatus(f, outcome)))
}

// warn emits the warning of an outcome that does not stand yet.
func (r *Reconciler) warn(merchant *v1alpha1.Merchant, outcome conditions.Outcome) {
	standing := reconciler.Warned{}
	if condition := outcome.Abnormal(); condition != "" {
		standing[condition] = outcome.Reason
		if !r.Warned(merchant, merchant.Status.Conditions).Has(condition, outcome.Reason) {
			r.Warn(merchant, outcome.Reason, actionPublish, "%s", outcome.Message)
		}
	}
	r.NoteWarned(merchant, standing)
}

// reportDeletion says why a deleted Merchant is still there. It warns of it, and writes the status if it changed.
func (r *Reconciler) reportDeletion(ctx context.Context, merchant *v1alpha1.Merchant, outcome conditions.Outcome) error {
	r.warn(merchant, outcome)
	status := *merchant.Status.DeepCopy()
	status.ObservedGeneration = merchant.Generation
	status.Conditions = outcome.Alone(status.Conditions, merchant.Generation, r.Clock.Now().UTC())
	return r.writeStatus(ctx, merchant, status)
}

// reportStillAccepted says that a Merchant is not restricted as its spec says. It returns the failure with its own.
func (r *Reconciler) reportStillAccepted(ctx context.Context, merchant *v1alpha1.Merchant, failure error) error {
	if reconciler.Superseded(failure) {
		return failure
	}
	outcome := conditions.Stalled(v1alpha1.ReasonStillAccepted,
		"spec.state is not in force, and the keys of the Merchant still work: %v. The operator retries", failure)
	r.warn(merchant, outcome)
	status := *merchant.Status.DeepCopy()
	status.ObservedGeneration = merchant.Generation
	status.Conditions = outcome.Conditions(status.Conditions, merchant.Generation, r.Clock.Now().UTC())
	return errors.Join(failure, r.writeStatus(ctx, merchant, status))
}

// reportUnrevoked says what a deletion waits for. It returns the failure with its own.
func (r *Reconciler) reportUnrevoked(ctx context.Context, merchant *v1alpha1.Merchant, failure error) error {
	if reconciler.Superseded(failure) {
		return failure
	}
	outcome := conditions.Failed(failure)
	if errors.Is(failure, errStillAccepted) {
		outcome = conditions.Stalled(v1alpha1.ReasonStillAccepted, "The deletion is not in force: %v. The operator retries", failure)
	}
	return errors.Join(failure, r.reportDeletion(ctx, merchant, outcome))
}

// newStatus is pure. It keeps the name of the delivered Secret while there is a webhook, even if the Secret is
// missing, to distinguish a first signing secret from a lost one.
func newStatus(f facts, outcome conditions.Outcome) v1alpha1.MerchantStatus {
	status := *f.merchant.Status.DeepCopy()
	status.ObservedGeneration = f.merchant.Generation
	status.MerchantID = published.PublicMerchantID(published.ID(f.merchant.UID))
	status.Conditions = withRateLimit(f, outcome.Conditions(status.Conditions, f.merchant.Generation, f.now))
	switch {
	case f.targetName() == "":
		status.WebhookSecretName = ""
	case f.target != nil:
		status.WebhookSecretName = f.target.Name
	}
	return status
}

// withRateLimit says that the platform's maximum is published instead of what the spec asks for, while that is so.
func withRateLimit(f facts, all []metav1.Condition) []metav1.Condition {
	asked, given := f.merchant.Spec.RateLimit, f.rateLimit()
	if asked == given {
		meta.RemoveStatusCondition(&all, v1alpha1.RateLimitReducedCondition)
		return all
	}
	return conditions.With(all, metav1.Condition{
		Type: v1alpha1.RateLimitReducedCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPlatformMaximum,
		ObservedGeneration: f.merchant.Generation,
		Message: fmt.Sprintf("spec.rateLimit is above the platform's maximum: the limit is %d per second with a burst of %d",
			given.RequestsPerSecond, given.Burst),
	}, f.now)
}

func (r *Reconciler) writeStatus(ctx context.Context, merchant *v1alpha1.Merchant, want v1alpha1.MerchantStatus) error {
	if apiequality.Semantic.DeepEqual(want, merchant.Status) {
		return nil
	}
	status := v1alpha1ac.MerchantStatus().
		WithObservedGeneration(want.ObservedGeneration).
		WithMerchantID(want.MerchantID).
		WithConditions(conditions.ApplyConfigurations(ownConditions(want.Conditions))...)
	if want.WebhookSecretName != "" {
		status.WithWebhookSecretName(want.WebhookSecretName)
	}
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithResourceVersion(merchant.ResourceVersion).WithStatus(status)
	return r.ApplyStatus(ctx, merchant, apply, func() *string { return apply.ResourceVersion })
}

// ownConditions are the conditions that the operator writes. WebhookHealthy belongs to the dispatcher: applying it
// once and leaving it out later would remove it.
func ownConditions(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool {
		return c.Type == v1alpha1.WebhookHealthyCondition
	})
}
