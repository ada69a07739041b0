package published

import (
	"errors"
	"fmt"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// ErrInvalid is wrapped by every error that says a published object cannot be used as it is. Such
// an error says which field is wrong, never what it holds.
var ErrInvalid = errors.New("invalid published object")

// ErrNewerVersion is wrapped, beside ErrInvalid, when the object was written by a newer program. It is
// left as it is: to replace it would undo what the newer program knows.
var ErrNewerVersion = errors.New("written by a newer version")

var errNewer = fmt.Errorf("%w: %w", ErrInvalid, ErrNewerVersion)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// validate refuses a record the data plane could not act on. An unknown cause of a rotation passes,
// for it is only shown, and an older reader must not lose a key over a newer word.
func (r KeyRecord) validate() error {
	switch {
	case !validID(r.KeyID):
		return invalid("keyID is not an id")
	case !validID(r.MerchantID):
		return invalid("merchantID is not an id")
	case r.Source.incomplete():
		return invalid("source is incomplete")
	case r.Generation < 1 || r.Generation >= maxNumber:
		return invalid("generation %d is out of range", r.Generation)
	case r.Revision < 1 || r.Revision >= maxNumber:
		return invalid("revision %d is out of range", r.Revision)
	case r.Current.Digest.IsZero():
		return invalid("current.digest is missing")
	case r.Current.CreatedAt.IsZero():
		return invalid("current.createdAt is missing")
	case r.State != v1alpha1.ApiKeyActive && r.State != v1alpha1.ApiKeyDisabled:
		return invalid("state is neither Active nor Disabled")
	case r.LastRotation.Time.IsZero() || r.LastRotation.Cause == "":
		return invalid("lastRotation is incomplete")
	case r.HandledDigest != nil && r.HandledDigest.IsZero():
		return invalid("handledDigest is empty")
	case len(r.Previous) > MaxPrevious:
		return invalid("previous has %d entries, at most %d are kept", len(r.Previous), MaxPrevious)
	}
	for i, p := range r.Previous {
		if p.Digest.IsZero() || p.ValidUntil.IsZero() {
			return invalid("previous[%d] is incomplete", i)
		}
	}
	return nil
}

// validate refuses a record the data plane could not act on. Unknown kinds of webhook event pass:
// nobody sends them.
func (r MerchantRecord) validate() error {
	switch {
	case !validID(r.MerchantID):
		return invalid("merchantID is not an id")
	case r.Namespace == "" || r.Name == "":
		return invalid("namespace or name is missing")
	case r.DisplayName == "":
		return invalid("displayName is missing")
	case r.State != v1alpha1.MerchantActive && r.State != v1alpha1.MerchantSuspended && r.State != v1alpha1.MerchantClosed:
		return invalid("state is none of Active, Suspended, Closed")
	case r.RateLimit.RequestsPerSecond < 1:
		return invalid("rateLimit.requestsPerSecond is below 1")
	case r.RateLimit.Burst < 1:
		return invalid("rateLimit.burst is below 1")
	case r.Sessions.LifetimeSeconds < 1:
		return invalid("sessions.lifetimeSeconds is below 1")
	case r.Sessions.IdempotencyMismatch != v1alpha1.IdempotencyMismatchReturn &&
		r.Sessions.IdempotencyMismatch != v1alpha1.IdempotencyMismatchReject:
		return invalid("sessions.idempotencyMismatch is neither Return nor Reject")
	case r.Webhook != nil && r.Webhook.URL == "":
		return invalid("webhook.url is missing")
	}
	_, err := r.Allowlist()
	return err
}

// validate refuses a tombstone that says nobody's end.
func (t Tombstone) validate() error {
	switch {
	case t.Kind != TombstoneApiKey && t.Kind != TombstoneMerchant:
		return invalid("kind is neither ApiKey nor Merchant")
	case !validID(t.ID):
		return invalid("id is not an id")
	case t.Source.incomplete():
		return invalid("source is incomplete")
	case t.EndedAt.IsZero():
		return invalid("endedAt is missing")
	}
	return nil
}

// validate refuses a claim that is nobody's.
func (c DigestClaim) validate() error {
	switch {
	case c.Digest.IsZero():
		return invalid("digest is missing")
	case c.Source.incomplete():
		return invalid("source is incomplete")
	case !validID(c.KeyID):
		return invalid("keyID is not an id")
	case c.ClaimedAt.IsZero():
		return invalid("claimedAt is missing")
	}
	return nil
}

func (s Source) incomplete() bool { return s.Namespace == "" || s.Name == "" || s.UID == "" }

// validate refuses a record that nothing could be signed with.
func (r WebhookRecord) validate() error {
	switch {
	case !validID(r.MerchantID):
		return invalid("merchantID is not an id")
	case r.Source.incomplete():
		return invalid("source is incomplete")
	case r.Current.Secret.IsZero():
		return invalid("current.secret is missing")
	case r.Current.CreatedAt.IsZero():
		return invalid("current.createdAt is missing")
	case len(r.Retired) > MaxRetired:
		return invalid("retired has %d entries, at most %d are kept", len(r.Retired), MaxRetired)
	}
	for i, retired := range r.Retired {
		if retired.Secret.IsZero() || retired.ValidUntil.IsZero() {
			return invalid("retired[%d] is incomplete", i)
		}
	}
	return nil
}
