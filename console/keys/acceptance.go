package keys

import (
	"context"
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
func (h *Handler) readAcceptance(ctx context.Context, merchant *v1alpha1.Merchant, keys []types.UID) issuer.Acceptance {
	found, err := h.Issuer.Accepted(ctx, merchant.UID, keys)
	if err != nil {
		h.Log.Warn("could not ask which keys are accepted", "namespace", merchant.Namespace, "name", merchant.Name, "error", err)
		return issuer.Acceptance{Unknown: true}
	}
	return found
}

// inForceInterval is between two questions whether an action is in force.
const inForceInterval = 200 * time.Millisecond

// awaitInForce waits until what the spec of a key wants is in force, or ForceTimeout. Where too many wait already, it does not.
func (h *Handler) awaitInForce(ctx context.Context, viewer login.Person, merchant *v1alpha1.Merchant, key types.UID, want string) {
	end, err := h.Waits.Begin(viewer.User, merchant.Namespace)
	if err != nil {
		return
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, h.ForceTimeout)
	defer cancel()
	for {
		found, err := h.Issuer.Accepted(ctx, merchant.UID, []types.UID{key})
		if err == nil && found.KeyForce(key, want == WantsActive) == issuer.InForce {
			return
		}
		select {
		case <-time.After(inForceInterval):
		case <-ctx.Done():
			return
		}
	}
}
