package subject

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Conditions returns the existing conditions changed to say the outcome for this generation of the
// spec: Ready always, Reconciling or Stalled only if true, each with the time its status changed.
func (o Outcome) Conditions(existing []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	conditions := slices.Clone(existing)
	for _, kind := range []string{v1alpha1.ReadyCondition, v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition} {
		status := metav1.ConditionTrue
		switch {
		case kind == v1alpha1.ReadyCondition && !o.IsReady():
			status = metav1.ConditionFalse
		case kind != v1alpha1.ReadyCondition && kind != o.abnormal:
			meta.RemoveStatusCondition(&conditions, kind)
			continue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type:               kind,
			Status:             status,
			Reason:             o.Reason,
			Message:            o.Message,
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now),
		})
	}
	return conditions
}

// News reports whether the outcome differs from what the existing conditions say, by more than its
// message: then it is worth an event.
func (o Outcome) News(existing []metav1.Condition) bool {
	ready := meta.FindStatusCondition(existing, v1alpha1.ReadyCondition)
	return ready == nil || ready.Reason != o.Reason || (ready.Status == metav1.ConditionTrue) != o.IsReady()
}

// Apply returns conditions in the form of server-side apply.
func Apply(conditions []metav1.Condition) []*metav1ac.ConditionApplyConfiguration {
	var applied []*metav1ac.ConditionApplyConfiguration
	for _, c := range conditions {
		applied = append(applied, metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithReason(c.Reason).
			WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime))
	}
	return applied
}
