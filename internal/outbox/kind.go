package outbox

import (
	"maps"
	"slices"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Subject is what events of a kind are about: it decides which fields they have, in Redis and in their body.
type Subject int

// Subjects of events; 0 is that of an unknown kind.
const (
	// AboutSession: Event.Session is set.
	AboutSession Subject = iota + 1
	// AboutPayment: Event.Session and its Payment are set.
	AboutPayment
	// AboutKey: Event.Key is set.
	AboutKey
	// AboutTest: Event.Test is set.
	AboutTest
)

// subjects are those of all kinds. A new kind is a line here, the change that records it, its name in api/v1alpha1 and its
// row in docs/webhooks.md.
var subjects = map[v1alpha1.WebhookEvent]Subject{
	v1alpha1.EventSessionCreated:   AboutSession,
	v1alpha1.EventSessionCompleted: AboutSession,
	v1alpha1.EventSessionFailed:    AboutSession,
	v1alpha1.EventSessionExpired:   AboutSession,
	v1alpha1.EventSessionCancelled: AboutSession,
	v1alpha1.EventLatePayment:      AboutPayment,
	v1alpha1.EventPaymentMismatch:  AboutPayment,
	v1alpha1.EventKeyRotated:       AboutKey,
	v1alpha1.EventWebhookTest:      AboutTest,
}

// Kinds returns all kinds of events, sorted.
func Kinds() []v1alpha1.WebhookEvent { return slices.Sorted(maps.Keys(subjects)) }

// Subject returns what the event must be about, by its kind.
func (e Event) Subject() Subject { return subjects[e.Kind] }
