package directory

import (
	"bytes"
	"errors"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// key is what the directory keeps of a published key: what requests and overrides need. It is immutable. There may be hundreds of
// thousands, and the whole record would take three times the memory.
type key struct {
	// id is a substring of the published object's name and shares its memory.
	id string
	// merchant is the id of its merchant, shared with its other keys.
	merchant             unique.Handle[string]
	generation, revision int64
	digest               apikey.Digest // the current one
	// created is when the ApiKey was first published, issued when the current digest was issued, and rotated the time of the last
	// rotation, all in Unix microseconds.
	created, issued, rotated int64
	// extra is nil for most keys.
	extra *keyExtra
	// test: the ApiKey is of test mode.
	test     bool
	disabled bool
	// permissions are what the key may do.
	permissions Permissions
	// external: the current key was externally generated.
	external bool
	// superseded: this record was restored after a newer one was published. It accepts nothing on its own.
	superseded bool
	// unreadable: a newer program wrote the record, of which this one knows the envelope alone. It can only refuse by it.
	unreadable bool
}

// keyExtra has the fields that most keys do not need.
type keyExtra struct {
	previous  []published.Previous
	expiresAt *time.Time
	// handled is the digest in the ApiKey's spec, which may have been rotated since.
	handled *apikey.Digest
	// allowlist narrows that of the merchant.
	allowlist allowlist.List
	// wait limits the key until the handler has written its record; nil: it has.
	wait *wait
}

// decodeKey reads a published key. With ErrNewerVersion it returns what the envelope says, or nil.
func decodeKey(secret *corev1.Secret) (*key, error) {
	record, err := published.DecodeKey(secret)
	if errors.Is(err, published.ErrNewerVersion) {
		if envelope, envelopeErr := published.DecodeKeyEnvelope(secret); envelopeErr == nil {
			return newKey(secret, envelope), err
		}
	}
	if err != nil {
		return nil, err
	}
	return newKey(secret, record), nil
}

func newKey(secret *corev1.Secret, record published.KeyRecord) *key {
	allowed, _ := allowlist.Parse(record.IPAllowlist) // a decoded one is valid
	k := &key{
		id:          published.KeyID(secret.Name),
		merchant:    unique.Make(record.MerchantID),
		generation:  record.Generation,
		revision:    record.Revision,
		digest:      record.Current.Digest,
		created:     secret.CreationTimestamp.UnixMicro(),
		issued:      record.Current.CreatedAt.UnixMicro(),
		rotated:     record.LastRotation.Time.UnixMicro(),
		test:        record.Test,
		disabled:    record.Revoked || record.State != v1alpha1.ApiKeyActive,
		permissions: NewPermissions(record.Permissions),
		external:    record.Current.Prefix == "",
		superseded:  record.Superseded,
	}
	if len(record.Previous) > 0 || record.ExpiresAt != nil || record.HandledDigest != nil || len(allowed) > 0 {
		k.extra = &keyExtra{previous: record.Previous, expiresAt: record.ExpiresAt, handled: record.HandledDigest, allowlist: allowed}
	}
	return k
}

// following returns the key as it is after a newer program has changed its record to next: what the envelope says, and of all else what
// was known. Digests that next may accept besides the current one are not known.
func (k *key) following(next *key) *key {
	out := *k
	out.generation, out.revision, out.issued = next.generation, next.revision, next.issued
	out.disabled, out.superseded, out.test, out.external = next.disabled, next.superseded, next.test, next.external
	out.permissions = next.permissions
	var extra keyExtra
	if k.extra != nil {
		extra = *k.extra
	}
	if next.digest != k.digest {
		out.digest, out.rotated, extra.previous = next.digest, next.issued, nil
	}
	if extra.wait != nil && extra.wait.earlier != nil {
		extra.wait = nil
	}
	extra.expiresAt, extra.allowlist = nil, nil
	if next.extra != nil {
		extra.expiresAt, extra.allowlist = next.extra.expiresAt, next.extra.allowlist
	}
	out.extra = &extra
	return &out
}

// record is the part of the published record that decides about digests.
func (k *key) record() published.KeyRecord {
	record := published.KeyRecord{
		KeyID:      k.id,
		MerchantID: k.merchant.Value(),
		Generation: k.generation,
		Revision:   k.revision,
		Current:    published.Current{Digest: k.digest, CreatedAt: unixMicro(k.issued)},
		State:      v1alpha1.ApiKeyActive,
		Superseded: k.superseded,
	}
	if k.disabled {
		record.State = v1alpha1.ApiKeyDisabled
	}
	if k.extra != nil {
		record.Previous, record.ExpiresAt = k.extra.previous, k.extra.expiresAt
	}
	return record
}

// claims are the digests by which the key may be found, without duplicates: the current one if it is externally generated, those
// in their overlap, and the one of the ApiKey's spec, even after a rotation. Generated ones are found by key id first.
func (k *key) claims() []apikey.Digest {
	var claims []apikey.Digest
	if k.external {
		claims = append(claims, k.digest)
	}
	if k.extra == nil {
		return claims
	}
	for _, previous := range k.extra.previous {
		claims = append(claims, previous.Digest)
	}
	if k.extra.handled != nil {
		claims = append(claims, *k.extra.handled)
	}
	const few = 2
	if len(claims) < few {
		return claims
	}
	slices.SortFunc(claims, func(a, b apikey.Digest) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(claims)
}

// issuedBefore reports whether the digest was issued to k before it was issued to the other key. A digest that is no longer the
// current one of a key was issued before one that is.
func (k *key) issuedBefore(other *key, digest apikey.Digest) bool {
	mine, theirs := k.digest == digest, other.digest == digest
	switch {
	case mine != theirs:
		return theirs
	case k.issued != other.issued:
		return k.issued < other.issued
	}
	return k.id < other.id
}

func (k *key) principal(digest apikey.Digest, prefix string, merchant *Merchant) Principal {
	p := Principal{
		KeyID:       k.id,
		Generation:  k.generation,
		Order:       k.order(),
		Digest:      digest,
		TestMode:    k.test,
		Prefix:      prefix,
		CreatedAt:   unixMicro(k.created),
		RotatedAt:   unixMicro(k.rotated),
		Permissions: k.permissions,
		Merchant:    merchant,
	}
	if k.extra != nil {
		p.ExpiresAt, p.Allowlist = k.extra.expiresAt, k.extra.allowlist
	}
	return p
}

// order is the order of the record.
func (k *key) order() published.Order {
	return published.Order{Issued: max(unixMicro(k.issued).UnixMilli(), 0), Revision: k.revision}
}

func unixMicro(microseconds int64) time.Time { return time.UnixMicro(microseconds).UTC() }
