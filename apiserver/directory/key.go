package directory

import (
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
	// elsewhere: the current key was made elsewhere, and has no prefix.
	elsewhere bool
}

// keyRest is what most keys do not have.
type keyRest struct {
	previous  []published.Previous
	expiresAt *time.Time
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
		elsewhere:  record.Current.Prefix == "",
	}
	if len(record.Previous) > 0 || record.ExpiresAt != nil {
		k.rest = &keyRest{record.Previous, record.ExpiresAt}
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
	}
	if k.disabled {
		record.State = v1alpha1.ApiKeyDisabled
	}
	if k.rest != nil {
		record.Previous, record.ExpiresAt = k.rest.previous, k.rest.expiresAt
	}
	return record
}

// digests are the current one and the previous ones, each once.
func (k *key) digests() []apikey.Digest {
	digests := []apikey.Digest{k.digest}
	if k.rest == nil {
		return digests
	}
	for _, previous := range k.rest.previous {
		if !slices.Contains(digests, previous.Digest) {
			digests = append(digests, previous.Digest)
		}
	}
	return digests
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
