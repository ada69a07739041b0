package apikeys

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Reasons of events that are no condition's reason: they tell what was done, not how things stand.
const (
	reasonRotated        = "Rotated"
	reasonStaleDelivery  = "StaleDeliveryRemoved"
	reasonRetentionEnded = "RetentionEnded"
	reasonDeliveryMoved  = "DeliveryMoved"
	reasonNotDelivered   = "NotDelivered"
	reasonTriggerIdle    = "TriggerIgnored"
)

// The actions of events.
const (
	actionIssue   = "Issue"
	actionPublish = "Publish"
	actionDeliver = "Deliver"
)

func (r *Reconciler) tell(apiKey *v1alpha1.ApiKey, reason, action, format string, args ...any) {
	r.Events.Eventf(apiKey, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

func (r *Reconciler) warn(apiKey *v1alpha1.ApiKey, reason, action, format string, args ...any) {
	r.Events.Eventf(apiKey, nil, corev1.EventTypeWarning, reason, action, format, args...)
}
