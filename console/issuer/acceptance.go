package issuer

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Acceptance is what is in force of a Merchant and its ApiKeys: what the API answers, not what specs want or statuses say.
type Acceptance struct {
	// Unknown: the API has not answered.
	Unknown bool
	// Merchant is the published state of the Merchant; empty: nothing is published of it.
	Merchant v1alpha1.MerchantState
	// Keys are the accepted ones.
	Keys map[types.UID]bool
}

// Force says whether what the spec of a key or Merchant wants is in force.
type Force string

// Whether something is in force. The values are part of the keys of words.
const (
	InForce      Force = ""
	NotInForce   Force = "waits"
	ForceUnknown Force = "unknown"
)

// KeyForce says whether what the spec of a key wants, to be accepted or not, is in force.
func (a Acceptance) KeyForce(uid types.UID, wantsActive bool) Force {
	switch {
	case a.Unknown:
		return ForceUnknown
	case a.Keys[uid] != wantsActive:
		return NotInForce
	}
	return InForce
}

// MerchantForce says whether the state of a Merchant, or its deletion, is in force. A deletion is when no key is accepted.
func (a Acceptance) MerchantForce(merchant *v1alpha1.Merchant) Force {
	keyAccepted := slices.Contains(slices.Collect(maps.Values(a.Keys)), true)
	refused := a.Merchant == v1alpha1.MerchantSuspended || a.Merchant == v1alpha1.MerchantClosed
	var waits bool
	switch {
	case a.Unknown:
		return ForceUnknown
	case !merchant.DeletionTimestamp.IsZero():
		waits = keyAccepted
	case merchant.Spec.State == v1alpha1.MerchantActive:
		waits = refused
	default:
		waits = !refused && (keyAccepted || a.Merchant == v1alpha1.MerchantActive)
	}
	if waits {
		return NotInForce
	}
	return InForce
}
