package merchants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
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

// Report emits the warnings, and writes the status if it changed. It returns the time until the next check is due.
func (r *Reconciler) Report(ctx context.Context, f facts, failure error) (time.Duration, error) {
	outcome := outcomeFor(f)
	if failure != nil {
		outcome = conditions.Failed(failure)
	}
	r.notify(f.merchant, noticesFor(f, outcome))
	return nextCheck(f, outcome), r.writeStatus(ctx, f.merchant, newStatus(f, outcome))
}

// notify emits the warnings that do not stand yet.
func (r *Reconciler) notify(merchant *v1alpha1.Merchant, notices []conditions.Notice) {
	r.Notify(merchant, r.Warned(merchant, merchant.Status.Conditions), actionPublish, notices)
}

// reportDeletion says why a deleted Merchant is still there.
func (r *Reconciler) reportDeletion(ctx context.Context, merchant *v1alpha1.Merchant, outcome conditions.Outcome) error {
	r.notify(merchant, outcome.Notices())
	status := *merchant.Status.DeepCopy()
	status.ObservedGeneration = merchant.Generation
	status.Conditions = conditions.Only(status.Conditions, outcome.Notices(), merchant.Generation, r.Clock.Now().UTC())
	return r.writeStatus(ctx, merchant, status)
}

// ReportUnrestricted says that a Merchant is not restricted as its spec says.
func (r *Reconciler) ReportUnrestricted(ctx context.Context, f facts, failure error) error {
	outcome := conditions.Stalled(v1alpha1.ReasonStillAccepted,
		"A restriction of the spec is not in force, and the keys of the Merchant still work as before: %v. The operator retries", failure)
	r.notify(f.merchant, outcome.Notices())
	status := *f.merchant.Status.DeepCopy()
	status.ObservedGeneration = f.merchant.Generation
	status.Conditions = conditions.After(status.Conditions, outcome.Notices(), f.merchant.Generation, r.Clock.Now().UTC())
	return r.writeStatus(ctx, f.merchant, status)
}

// ReportUnrevoked says what a deletion waits for.
func (r *Reconciler) ReportUnrevoked(ctx context.Context, merchant *v1alpha1.Merchant, failure error) error {
	outcome := conditions.Failed(failure)
	if errors.Is(failure, errStillAccepted) {
		outcome = conditions.Stalled(v1alpha1.ReasonStillAccepted, "The deletion is not in force: %v. The operator retries", failure)
	}
	return r.reportDeletion(ctx, merchant, outcome)
}

// ReportHeld says why a revoked Merchant is still there.
func (r *Reconciler) ReportHeld(ctx context.Context, merchant *v1alpha1.Merchant) error {
	return r.reportDeletion(ctx, merchant, reconciler.Held("The Merchant"))
}

// newStatus is pure. It keeps the name of the delivered Secret while there is a webhook, even if the Secret is
// missing, to distinguish a first signing secret from a lost one.
func newStatus(f facts, outcome conditions.Outcome) v1alpha1.MerchantStatus {
	status := *f.merchant.Status.DeepCopy()
	status.ObservedGeneration = f.merchant.Generation
	status.MerchantID = published.PublicMerchantID(published.ID(f.merchant.UID))
	status.Conditions = conditions.After(status.Conditions, noticesFor(f, outcome), f.merchant.Generation, f.now)
	switch {
	case f.targetName() == "":
		status.WebhookSecretName = ""
	case f.target != nil:
		status.WebhookSecretName = f.target.Name
	}
	return status
}

// noticesFor returns what people are told of a Merchant.
func noticesFor(f facts, outcome conditions.Outcome) []conditions.Notice {
	return append(outcome.Notices(), rateLimitReduced(f))
}

// rateLimitReduced says that the platform's maximum is published instead of what the spec asks for, while that is so.
func rateLimitReduced(f facts) conditions.Notice {
	asked, given := f.merchant.Spec.RateLimit, f.rateLimit()
	if asked == given {
		return conditions.Absent(v1alpha1.RateLimitReducedCondition)
	}
	return conditions.Notice{Condition: metav1.Condition{
		Type: v1alpha1.RateLimitReducedCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPlatformMaximum,
		Message: fmt.Sprintf("spec.rateLimit is above the platform's maximum: the limit is %d per second with a burst of %d",
			given.RequestsPerSecond, given.Burst),
	}}
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
