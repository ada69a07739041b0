package keys

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/login"
)

// What the spec of a key wants. The words force.<want>.<force> say whether that is in force.
const (
	WantsActive   = "active"
	WantsDisabled = "disabled"
	WantsDeleted  = "deleted"
	WantsExpired  = "expired"
)

// keyWish returns what the spec of a key wants at the time now.
func keyWish(key *v1alpha1.ApiKey, now time.Time) string {
	switch {
	case !key.DeletionTimestamp.IsZero():
		return WantsDeleted
	case key.Spec.State == v1alpha1.ApiKeyDisabled:
		return WantsDisabled
	case key.Spec.ExpiresAt != nil && !now.Before(key.Spec.ExpiresAt.Time):
		return WantsExpired
	}
	return WantsActive
}

// readAcceptance asks what is in force of a Merchant and its keys. If the API does not answer, nothing is known, and the page says so.
func (h *Handler) readAcceptance(ctx context.Context, merchant *v1alpha1.Merchant, keys Rows) issuer.Acceptance {
	uids := make([]types.UID, len(keys))
	for i := range keys {
		uids[i] = keys[i].UID
	}
	found, err := h.Issuer.Accepted(ctx, merchant.UID, uids)
	if err != nil {
		h.Log.Warn("could not ask which keys are accepted", "namespace", merchant.Namespace, "name", merchant.Name, "error", err)
		return issuer.Acceptance{Unknown: true}
	}
	return found
}

// forceInterval is between two questions whether an action is in force.
const forceInterval = 200 * time.Millisecond

// awaitForce waits until what the spec of a key wants is in force, or ForceTimeout. Where too many wait already, it does not.
func (h *Handler) awaitForce(ctx context.Context, viewer login.Person, merchant, key types.UID, want string) {
	end, err := h.Waits.Begin(viewer.User)
	if err != nil {
		return
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, h.ForceTimeout)
	defer cancel()
	for {
		found, err := h.Issuer.Accepted(ctx, merchant, []types.UID{key})
		if err == nil && found.KeyForce(key, want == WantsActive) == issuer.InForce {
			return
		}
		select {
		case <-time.After(forceInterval):
		case <-ctx.Done():
			return
		}
	}
}

// refusals are the reasons of the condition Usable with which a key is refused.
func refusals() []string {
	return []string{
		v1alpha1.ReasonDisabled, v1alpha1.ReasonExpired, v1alpha1.ReasonMerchantSuspended, v1alpha1.ReasonMerchantClosed, v1alpha1.ReasonMerchantNotFound,
		v1alpha1.ReasonMerchantNotPublished,
	}
}

// Problems of a key that only the console knows. Others are reasons of the condition Usable.
const (
	problemUnknown    = "Unknown"
	problemNotInForce = "NotInForce"
	problemDeleted    = "Deleted"
)

// apply says what is in force of the key. The status of the ApiKey, which tenants can write and the operator may write late, is no more than the
// reason why an accepted key is not as its spec wants it.
func (k *Row) apply(in issuer.Acceptance) {
	k.Force = in.KeyForce(k.UID, k.Wants == WantsActive)
	switch {
	case k.Force == issuer.ForceUnknown:
		k.Problem = problemUnknown
	case k.Force == issuer.NotInForce && k.Wants != WantsActive:
		k.Problem = problemNotInForce
	case k.Force == issuer.NotInForce:
		k.Problem = notReady
	case k.Wants == WantsDisabled:
		k.Problem = v1alpha1.ReasonDisabled
	case k.Wants == WantsDeleted:
		k.Problem = problemDeleted
	case k.Wants == WantsExpired:
		k.Problem = v1alpha1.ReasonExpired
	case in.Merchant == v1alpha1.MerchantSuspended:
		k.Problem = v1alpha1.ReasonMerchantSuspended
	case in.Merchant == v1alpha1.MerchantClosed:
		k.Problem = v1alpha1.ReasonMerchantClosed
	case slices.Contains(refusals(), k.Problem):
		k.Problem = ""
	}
}

// Line is the key of the words that say whether tills are refused; empty: nothing needs to be said.
func (k *Row) Line() string {
	switch {
	case k.Force != issuer.InForce:
		return "force." + k.Wants + "." + string(k.Force)
	case k.Wants == WantsDisabled || k.Wants == WantsDeleted:
		return "force." + k.Wants
	}
	return ""
}
