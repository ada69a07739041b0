package merchants

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Reasons of events that are no condition's reason: they tell what was done, not how things stand.
const (
	reasonSigningIssued   = "SigningSecretIssued"
	reasonSigningRotated  = "SigningSecretRotated"
	reasonSigningLost     = "SigningSecretLost"
	reasonDelivered       = "SigningSecretDelivered"
	reasonDeliveryRemoved = "DeliveryRemoved"
)

// The actions of events.
const (
	actionPublish = "Publish"
	actionSign    = "Sign"
	actionDeliver = "Deliver"
)

func (r *Reconciler) tell(merchant *v1alpha1.Merchant, reason, action, format string, args ...any) {
	r.Events.Eventf(merchant, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

func (r *Reconciler) warn(merchant *v1alpha1.Merchant, reason, action, format string, args ...any) {
	r.Events.Eventf(merchant, nil, corev1.EventTypeWarning, reason, action, format, args...)
}
