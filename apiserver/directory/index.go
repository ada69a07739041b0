package directory

import (
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// index finds keys and merchants. Objects are known by name, for a name is all that is left of one
// that vanished or cannot be decoded. Every change goes through put and drop.
type index struct {
	keys      map[string]*key
	merchants map[string]*Merchant
	// claims are the keys that have a digest, current or previous, the oldest claim first. There is
	// one, unless somebody published a key made elsewhere twice.
	claims map[apikey.Digest][]*key
}

func newIndex() index {
	return index{
		keys:      map[string]*key{},
		merchants: map[string]*Merchant{},
		claims:    map[apikey.Digest][]*key{},
	}
}

// claimant returns the key a digest belongs to, nil if nobody's. When several claim it, the oldest
// live claim holds: whoever learns a digest cannot take the key over by publishing it again.
func (i *index) claimant(digest apikey.Digest, now time.Time) *key {
	claims := i.claims[digest]
	for _, k := range claims {
		if k.record.Live(digest, now) {
			return k
		}
	}
	if len(claims) > 0 {
		return claims[0]
	}
	return nil
}

func (i *index) putKey(name string, k *key) {
	i.dropKey(name)
	i.keys[name] = k
	for _, digest := range k.digests() {
		claims := append(slices.Clone(i.claims[digest]), k)
		slices.SortFunc(claims, olderClaim)
		i.claims[digest] = claims
	}
}

func (i *index) dropKey(name string) {
	k, known := i.keys[name]
	if !known {
		return
	}
	delete(i.keys, name)
	for _, digest := range k.digests() {
		claims := slices.DeleteFunc(i.claims[digest], func(other *key) bool { return other == k })
		if len(claims) == 0 {
			delete(i.claims, digest)
		} else {
			i.claims[digest] = claims
		}
	}
}

// digests are those of the record, each once.
func (k *key) digests() []apikey.Digest {
	digests := []apikey.Digest{k.record.Current.Digest}
	for _, previous := range k.record.Previous {
		if !slices.Contains(digests, previous.Digest) {
			digests = append(digests, previous.Digest)
		}
	}
	return digests
}

// olderClaim orders by the time the key's current digest was put in force.
func olderClaim(a, b *key) int {
	if order := a.record.Current.CreatedAt.Compare(b.record.Current.CreatedAt); order != 0 {
		return order
	}
	if a.record.KeyID < b.record.KeyID {
		return -1
	}
	return 1
}
