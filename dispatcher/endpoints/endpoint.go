package endpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// State is what is published of a merchant.
type State int

// States of a merchant.
const (
	// Unknown: nothing is published. The merchant may be new, or what was published of it is lost.
	Unknown State = iota
	Published
	// Unreadable: something is published that this program cannot decode.
	Unreadable
	// Withdrawn: the operator has said that the Merchant is no more.
	Withdrawn
)

// Endpoint is where one merchant's events go. All but State is empty unless that is Published.
type Endpoint struct {
	State State
	// MerchantID is the bare id, without the "mer_" people see; MerchantName is the name payers see.
	MerchantID, MerchantName string
	// Merchant is the object whose status tells how the endpoint fares, and UID keeps that from
	// another object of the same name; it is empty in what older operators published.
	Merchant types.NamespacedName
	UID      types.UID

	// URL is empty for a merchant without a webhook.
	URL string
	// Secrets sign, the newest first; none while the operator has not made one yet.
	Secrets []published.SigningSecret
	// Target changes with the URL and with spec.webhook.resumeTrigger: what was learnt of an endpoint
	// is true of one target only.
	Target string

	events []v1alpha1.WebhookEvent
}

// Wants reports whether the merchant asked to be told of such an event. One with a webhook that named
// no kinds gets all of them but session.created, which would double what every till sends anyway.
func (e Endpoint) Wants(kind v1alpha1.WebhookEvent) bool {
	if e.URL == "" {
		return false
	}
	if len(e.events) == 0 {
		return kind != v1alpha1.EventSessionCreated
	}
	return slices.Contains(e.events, kind)
}

// target is a digest, for a URL may hold a merchant's own token.
func target(webhook v1alpha1.Webhook) string {
	sum := sha256.Sum256([]byte(webhook.URL + "\x00" + webhook.ResumeTrigger))
	return hex.EncodeToString(sum[:16])
}
