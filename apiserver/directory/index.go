package directory

import (
	"cmp"
	"slices"
	"time"
	"unique"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// index finds keys and merchants. Keys are known by the name of their object, for that is all that is left of one
// that vanished or cannot be decoded. Every change of keys goes through put and drop.
type index struct {
	keys      map[string]*key
	merchants map[unique.Handle[string]]*Merchant // by id
	// claims says which key has a digest, current or previous.
	claims map[apikey.Digest]*key
	// contested are the digests that several keys claim, and hence none in claims: somebody published a key made
	// elsewhere twice. The oldest claim is the first.
	contested map[apikey.Digest][]*key
}

func newIndex() index {
	return index{
		keys:      map[string]*key{},
		merchants: map[unique.Handle[string]]*Merchant{},
		claims:    map[apikey.Digest]*key{},
		contested: map[apikey.Digest][]*key{},
	}
}

// claimant returns the key a digest belongs to, nil if nobody's. When several claim it, the oldest
// live claim holds: whoever learns a digest cannot take the key over by publishing it again.
func (i *index) claimant(digest apikey.Digest, now time.Time) *key {
	if k := i.claims[digest]; k != nil {
		return k
	}
	claims := i.contested[digest]
	for _, k := range claims {
		if k.record().Live(digest, now) {
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
		i.claim(digest, k)
	}
}

func (i *index) dropKey(name string) {
	k, known := i.keys[name]
	if !known {
		return
	}
	delete(i.keys, name)
	for _, digest := range k.digests() {
		i.release(digest, k)
	}
}

func (i *index) claim(digest apikey.Digest, k *key) {
	claims := i.contested[digest]
	if only := i.claims[digest]; only != nil {
		claims = []*key{only}
	}
	if claims == nil {
		i.claims[digest] = k
		return
	}
	delete(i.claims, digest)
	claims = append(claims, k)
	slices.SortFunc(claims, olderClaim)
	i.contested[digest] = claims
}

func (i *index) release(digest apikey.Digest, k *key) {
	if i.claims[digest] == k {
		delete(i.claims, digest)
		return
	}
	claims := slices.DeleteFunc(i.contested[digest], func(other *key) bool { return other == k })
	if len(claims) > 1 {
		i.contested[digest] = claims
		return
	}
	delete(i.contested, digest)
	if len(claims) == 1 {
		i.claims[digest] = claims[0]
	}
}

// olderClaim orders by the time the key's current digest was put in force.
func olderClaim(a, b *key) int {
	if order := cmp.Compare(a.issued, b.issued); order != 0 {
		return order
	}
	return cmp.Compare(a.id, b.id)
}
