package directory

import (
	"bytes"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// key is what the directory keeps of a published key. It is never changed, only replaced. There may be hundreds of thousands,
// so that it holds what a request needs and what is told of it, in few words: a record takes three times as much.
type key struct {
	// id is part of the name of the published object, which the index holds anyway.
	id string
	// merchant is the id of its merchant, which has other keys besides.
	merchant             unique.Handle[string]
	generation, revision int64
	digest               apikey.Digest // the current one
	// made is when the ApiKey was first published, issued when the current digest was put in force, and rotated when that was
	// told of, all in Unix microseconds.
	made, issued, rotated int64
	// rest is nil for most keys.
	rest     *keyRest
	disabled bool
	// external: the current key was externally generated.
	external bool
	// superseded: a newer record was in force already when this one was put back. It opens nothing by itself.
	superseded bool
}

// keyRest is what most keys do not have.
type keyRest struct {
	previous  []published.Previous
	expiresAt *time.Time
	// handled is the externally generated digest of the ApiKey, which may have been rotated since.
	handled *apikey.Digest
}

// decodeKey reads a published key.
func decodeKey(secret *corev1.Secret) (*key, error) {
	record, err := published.DecodeKey(secret)
	if err != nil {
		return nil, err
	}
	k := &key{
		id:         published.KeyID(secret.Name),
		merchant:   unique.Make(record.MerchantID),
		generation: record.Generation,
		revision:   record.Revision,
		digest:     record.Current.Digest,
		made:       secret.CreationTimestamp.UnixMicro(),
		issued:     record.Current.CreatedAt.UnixMicro(),
		rotated:    record.LastRotation.Time.UnixMicro(),
		disabled:   record.State != v1alpha1.ApiKeyActive,
		external:   record.Current.Prefix == "",
		superseded: record.Superseded,
	}
	if len(record.Previous) > 0 || record.ExpiresAt != nil || record.HandledDigest != nil {
		k.rest = &keyRest{record.Previous, record.ExpiresAt, record.HandledDigest}
	}
	return k, nil
}

// record is the part of the published record that says what the key's digests are good for.
func (k *key) record() published.KeyRecord {
	record := published.KeyRecord{
		KeyID:      k.id,
		MerchantID: k.merchant.Value(),
		Generation: k.generation,
		Revision:   k.revision,
		Current:    published.Current{Digest: k.digest, CreatedAt: timeOf(k.issued)},
		State:      v1alpha1.ApiKeyActive,
		Superseded: k.superseded,
	}
	if k.disabled {
		record.State = v1alpha1.ApiKeyDisabled
	}
	if k.rest != nil {
		record.Previous, record.ExpiresAt = k.rest.previous, k.rest.expiresAt
	}
	return record
}

// claims are the digests the key may be found by, each once: the current one if it is externally generated, those in
// their overlap, and the one the ApiKey brought, even after a rotation. A generated one among them is found by its key id first.
func (k *key) claims() []apikey.Digest {
	var claims []apikey.Digest
	if k.external {
		claims = append(claims, k.digest)
	}
	if k.rest == nil {
		return claims
	}
	for _, previous := range k.rest.previous {
		claims = append(claims, previous.Digest)
	}
	if k.rest.handled != nil {
		claims = append(claims, *k.rest.handled)
	}
	const few = 2
	if len(claims) < few {
		return claims
	}
	slices.SortFunc(claims, func(a, b apikey.Digest) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(claims)
}

// issuedBefore reports whether the digest was issued to k before it was to the other key. A digest that is not the current one
// any more was issued before any that is.
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

func (k *key) principal(digest apikey.Digest, prefix string, merchant *Merchant, live bool) Principal {
	p := Principal{
		KeyID:      k.id,
		Generation: k.generation,
		Order:      k.order(),
		Digest:     digest,
		Live:       live,
		Prefix:     prefix,
		CreatedAt:  timeOf(k.made),
		RotatedAt:  timeOf(k.rotated),
		Merchant:   merchant,
	}
	if k.rest != nil {
		p.ExpiresAt = k.rest.expiresAt
	}
	return p
}

// order is the record's, for what is kept of the time of issue is enough for it.
func (k *key) order() published.Order {
	return published.Order{Issued: max(timeOf(k.issued).UnixMilli(), 0), Revision: k.revision}
}

func timeOf(microseconds int64) time.Time { return time.UnixMicro(microseconds).UTC() }
