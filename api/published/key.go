package published

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// KeyRecord is the published state of one ApiKey. It contains digests, never a key.
type KeyRecord struct {
	Version    int    `json:"version"`
	KeyID      string `json:"keyID"`
	MerchantID string `json:"merchantID"`
	Source     Source `json:"source"`

	// Generation counts the rotations; it never decreases.
	Generation int64 `json:"generation"`
	// Revision orders the versions of a record: every change increases it. It is the time of the change in Unix
	// milliseconds, or one more than the last, so it increases even if record and status are both lost.
	Revision int64 `json:"revision"`
	// Current is the current digest.
	Current Current `json:"current"`
	// Previous are older digests still in their overlap, the newest first.
	Previous []Previous `json:"previous,omitempty"`

	// An older operator sets it in a record that it cannot read whole.
	Revocation
	// Superseded is set by the API on a restored record, if a newer key exists. No key is accepted by it, and the
	// operator issues a new key.
	Superseded bool `json:"superseded,omitempty"`
	// NewerIssued is when the newer key was issued, in Unix milliseconds, beside Superseded: the replacement must be newer still.
	NewerIssued int64 `json:"newerIssued,omitempty"`

	// Test: it is a test key.
	Test      bool                 `json:"test,omitempty"`
	State     v1alpha1.ApiKeyState `json:"state"`
	ExpiresAt *time.Time           `json:"expiresAt,omitempty"`

	// Permissions are what the key may do; nil: everything, empty: nothing. A reader grants nothing for a word that it does not know.
	Permissions []v1alpha1.Permission `json:"permissions,omitzero"`
	// IPAllowlist narrows that of the merchant; empty: it does not.
	IPAllowlist []v1alpha1.IPBlock `json:"ipAllowlist,omitempty"`

	LastRotation RotationEvent `json:"lastRotation"`
	// HandledTrigger is the last handled spec.rotation.trigger. It is also here, so that a lost status rotates
	// nothing.
	HandledTrigger string `json:"handledTrigger,omitempty"`
	// TriggerTAT is the state of the limit on rotations by a changed spec: its theoretical arrival time. Zero: there was none.
	TriggerTAT time.Time `json:"triggerTAT,omitzero"`
	// HandledDigest is the last handled spec.keyDigest, so that the unchanged digest in Git does not undo a rotation
	// over HTTP.
	HandledDigest *apikey.Digest `json:"handledDigest,omitempty"`
}

// Equal reports whether both records have the same encoding.
func (r KeyRecord) Equal(other KeyRecord) bool {
	mine, myErr := json.Marshal(r)
	theirs, theirErr := json.Marshal(other)
	return myErr == nil && theirErr == nil && bytes.Equal(mine, theirs)
}

// Source is the ApiKey or Merchant of a record.
type Source struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Current is the current key. Prefix is empty for an externally generated key and for a placeholder.
type Current struct {
	Digest    apikey.Digest `json:"digest"`
	Prefix    string        `json:"prefix,omitempty"`
	CreatedAt time.Time     `json:"createdAt"`
}

// Previous is a rotated key and the end of its overlap. Prefix is empty for an externally generated key.
type Previous struct {
	Digest     apikey.Digest `json:"digest"`
	Prefix     string        `json:"prefix,omitempty"`
	ValidUntil time.Time     `json:"validUntil"`
}

// RotationEvent says when and why the current key was issued.
type RotationEvent struct {
	Time  time.Time              `json:"time"`
	Cause v1alpha1.RotationCause `json:"cause"`
	// Actor is who asked for it, in the words of the console; empty: unknown.
	Actor string `json:"actor,omitempty"`
}

// Placeholder returns a current key that nobody has: a random digest, not made from any key.
func Placeholder(createdAt time.Time) Current {
	current := Current{CreatedAt: createdAt}
	_, _ = rand.Read(current.Digest[:]) // never fails
	return current
}

// NewKey generates the next key of the record, with the label of its mode.
func (r KeyRecord) NewKey() (apikey.Key, error) {
	if r.Test {
		return apikey.NewTest(r.KeyID)
	}
	return apikey.New(r.KeyID)
}

// Issued reports whether somebody can have the current key, which is not a placeholder.
func (r KeyRecord) Issued() bool { return r.Current.Prefix != "" || r.HandledDigest != nil }

// EncodeKey returns the Secret of a record. The error for an invalid record is ErrInvalid, so that nothing is written
// that a reader would skip.
func EncodeKey(namespace string, record KeyRecord) (*corev1.Secret, error) {
	record.Version = recordVersion
	if err := record.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(record)
	if err != nil { // a time beyond the year 9999
		return nil, invalid("encode key record: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      KeyName(record.KeyID),
			Labels:    map[string]string{Label: LabelKey},
		},
		Type: KeySecretType,
		Data: map[string][]byte{keyData: data},
	}, nil
}

// DecodeKey reads a published key. Any error wraps ErrInvalid.
func DecodeKey(secret *corev1.Secret) (KeyRecord, error) {
	var record KeyRecord
	if secret.Type != KeySecretType {
		return KeyRecord{}, invalid("the Secret is not of type %s", KeySecretType)
	}
	if err := decode(secret.Data[keyData], &record, &record.Version); err != nil {
		return KeyRecord{}, err
	}
	if secret.Name != KeyName(record.KeyID) {
		return KeyRecord{}, invalid("keyID does not match the Secret's name")
	}
	if err := record.validate(); err != nil {
		return KeyRecord{}, err
	}
	return record, nil
}

// validate refuses a record that the data plane cannot use. An unknown cause of a rotation is valid, so that an older
// reader does not lose a key because of a newer cause.
func (r KeyRecord) validate() error {
	switch {
	case !ValidID(r.KeyID):
		return invalid("keyID is not an id")
	case !ValidID(r.MerchantID):
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
	_, err := ParseAllowlist(r.IPAllowlist)
	return err
}

func (s Source) incomplete() bool { return s.Namespace == "" || s.Name == "" || s.UID == "" }

// Order orders the versions of one key: first by when the current digest was issued, then by revision. A restored
// record has an older digest, so its revision does not matter.
type Order struct {
	// Issued is when the current digest was issued, in Unix milliseconds.
	Issued int64
	// Revision is the revision of the record.
	Revision int64
}

// Order returns the place of the record among all versions of its key.
func (r KeyRecord) Order() Order {
	return Order{Issued: max(r.Current.CreatedAt.UnixMilli(), 0), Revision: r.Revision}
}

// Compare is negative if o is older than other, positive if it is newer.
func (o Order) Compare(other Order) int {
	return cmp.Or(cmp.Compare(o.Issued, other.Issued), cmp.Compare(o.Revision, other.Revision))
}

// maxNumber is the largest integer that JSON and Lua represent exactly.
const maxNumber = 1 << 53

// ReadableGeneration returns the generation in a published key's Secret even if DecodeKey refuses it; 0: none. A
// record that replaces a broken one continues from it, because generations never decrease.
func ReadableGeneration(secret *corev1.Secret) int64 {
	var record struct {
		Generation int64 `json:"generation"`
	}
	if json.Unmarshal(secret.Data[keyData], &record) != nil || record.Generation < 0 || record.Generation >= maxNumber {
		return 0
	}
	return record.Generation
}

// MaxPrevious is the maximum number of rotated keys in their overlap; the oldest are dropped.
const MaxPrevious = 8

// Accepts reports whether the digest is accepted at the time now: the key is Active and not expired, and the digest is
// the current one or a previous one in its overlap.
func (r KeyRecord) Accepts(digest apikey.Digest, now time.Time) bool {
	until, accepted := r.AcceptedUntil(digest)
	return accepted && (until.IsZero() || now.Before(until))
}

// AcceptedUntil returns the end of the digest's acceptance, also if it has passed; zero: it has none. False: the digest is not accepted at
// any time.
func (r KeyRecord) AcceptedUntil(digest apikey.Digest) (until time.Time, accepted bool) {
	switch {
	case !r.active():
		return time.Time{}, false
	case r.Current.Digest.Equal(digest):
		return r.expiry(), true
	}
	for _, p := range r.Previous {
		if ends := r.overlapEnd(p); p.Digest.Equal(digest) && ends.After(until) {
			until, accepted = ends, true
		}
	}
	return until, accepted
}

// expiry returns when all keys of the record end; zero: never.
func (r KeyRecord) expiry() time.Time {
	if r.ExpiresAt == nil {
		return time.Time{}
	}
	return end(*r.ExpiresAt)
}

// overlapEnd returns when a previous key ends.
func (r KeyRecord) overlapEnd(p Previous) time.Time {
	until := end(p.ValidUntil)
	if expiry := r.expiry(); !expiry.IsZero() && expiry.Before(until) {
		return expiry
	}
	return until
}

// end returns a time as the end of a key. Zero, as a time or in milliseconds, means that there is none, so an end in 1970 or before is the
// millisecond after.
func end(t time.Time) time.Time {
	if first := time.UnixMilli(1).UTC(); t.Before(first) {
		return first
	}
	return t
}

// Usable reports whether any key of the record is accepted at the time now.
func (r KeyRecord) Usable(now time.Time) bool {
	return r.active() && (r.ExpiresAt == nil || now.Before(*r.ExpiresAt))
}

// active reports whether a key of the record is accepted at any time.
func (r KeyRecord) active() bool {
	return !r.Superseded && !r.Revoked && r.State == v1alpha1.ApiKeyActive
}

// Accepted is a digest with the end of its acceptance; zero: no end.
type Accepted struct {
	Digest apikey.Digest
	Until  time.Time
}

// Accepted returns every digest of the record with the end of its acceptance, also of those whose end has passed: the caller who keeps the list
// compares the ends with a clock of its own. None: no digest is accepted at any time.
func (r KeyRecord) Accepted() []Accepted {
	if !r.active() {
		return nil
	}
	accepted := []Accepted{{r.Current.Digest, r.expiry()}}
	for _, p := range r.Previous {
		accepted = append(accepted, Accepted{p.Digest, r.overlapEnd(p)})
	}
	return accepted
}

// NextRevision returns the revision for a change of the record at the time now.
func (r KeyRecord) NextRevision(now time.Time) int64 {
	return max(r.Revision+1, now.UnixMilli())
}

// Rotated returns the record after a rotation: higher generation and revision, next as the current key. The former
// key stays valid for the overlap. A rotation can shorten the overlap of older keys and never extends it; without an
// overlap it ends them all. Creation times increase by at least a millisecond, whatever the clocks say, because
// replicas order versions by them.
func (r KeyRecord) Rotated(next Current, cause v1alpha1.RotationCause, overlap time.Duration, now time.Time) KeyRecord {
	out := r
	out.Previous = nil
	if overlap > 0 {
		end := now.Add(overlap).UTC()
		replaced := Previous{Digest: r.Current.Digest, Prefix: r.Current.Prefix, ValidUntil: end}
		out.Previous = append([]Previous{replaced}, r.PreviousAt(now)...)
		out.Previous = out.Previous[:min(len(out.Previous), MaxPrevious)]
		for i, p := range out.Previous {
			if end.Before(p.ValidUntil) {
				out.Previous[i].ValidUntil = end
			}
		}
	}
	out.Generation++
	out.Revision = r.NextRevision(now)
	if after := r.Current.CreatedAt.Add(time.Millisecond); next.CreatedAt.Before(after) {
		next.CreatedAt = after
	}
	out.Current = next
	out.Superseded, out.NewerIssued = false, 0
	out.LastRotation = RotationEvent{Time: next.CreatedAt, Cause: cause}
	return out
}

// PreviousAt returns the previous keys in their overlap at the time now.
func (r KeyRecord) PreviousAt(now time.Time) []Previous {
	var live []Previous
	for _, p := range r.Previous {
		if now.Before(p.ValidUntil) {
			live = append(live, p)
		}
	}
	return live
}
