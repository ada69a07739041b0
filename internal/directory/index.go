package directory

import (
	"slices"
	"unique"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// index finds keys and merchants. Keys are known by the name of their object, for that is all that is left of one
// that vanished or cannot be decoded. Every change of keys goes through put and drop.
type index struct {
	keys      map[string]*key
	merchants map[unique.Handle[string]]*Merchant // by id
	// ended are the key ids that were here and have no usable record now.
	ended map[string]ended
	// external says which key has an externally generated digest. Generated keys are found by their key id alone.
	external map[apikey.Digest]*key
	// contested are the digests that several keys claim, and hence none in external. The operator never publishes a digest twice,
	// so this takes somebody with rights in the credentials namespace.
	contested map[apikey.Digest]*contest
}

// ended is what is left of a key.
type ended struct {
	// merchant is the zero Handle if the key was never known.
	merchant unique.Handle[string]
	// tombstone: the operator says that its ApiKey has really ended.
	tombstone bool
}

// contest is about a digest that several keys claim. The key to which it was issued first holds it, live or not, and nobody
// inherits it: it ends with the last claim.
type contest struct {
	holder string // a key id, which may be gone
	keys   []*key
}

func newIndex() index {
	return index{
		keys:      map[string]*key{},
		merchants: map[unique.Handle[string]]*Merchant{},
		ended:     map[string]ended{},
		external:  map[apikey.Digest]*key{},
		contested: map[apikey.Digest]*contest{},
	}
}

// find returns the only key that can accept what was presented, nil if there is none. A string of our grammar names its key
// id, else the id is empty: if that is here, or ever was, nobody else can accept the string. All else, and keys that came from
// another cluster with their old key id, can only be externally generated.
func (i *index) find(id string, digest apikey.Digest) *key {
	if id != "" {
		if _, was := i.ended[id]; was {
			return nil
		}
		if named := i.keys[published.KeyName(id)]; named != nil {
			return named
		}
	}
	found := i.holder(digest)
	if found != nil && i.ended[found.id].tombstone {
		return nil
	}
	return found
}

// holder returns the key that has an externally generated digest.
func (i *index) holder(digest apikey.Digest) *key {
	if k := i.external[digest]; k != nil {
		return k
	}
	c := i.contested[digest]
	if c == nil {
		return nil
	}
	if n := slices.IndexFunc(c.keys, func(k *key) bool { return k.id == c.holder }); n >= 0 {
		return c.keys[n]
	}
	return nil
}

func (i *index) putKey(name string, k *key) {
	earlier := i.keys[name]
	i.keys[name] = k
	if !i.ended[k.id].tombstone {
		delete(i.ended, k.id)
	}
	for _, digest := range k.claims() {
		i.claim(digest, k)
	}
	i.release(earlier) // not before, or a contest would be forgotten with the last claim in it
}

// dropKey remembers the key id of what it drops.
func (i *index) dropKey(name string) {
	k, known := i.keys[name]
	if !known {
		return
	}
	delete(i.keys, name)
	i.release(k)
	i.ended[k.id] = ended{merchant: k.merchant, tombstone: i.ended[k.id].tombstone}
}

func (i *index) claim(digest apikey.Digest, k *key) {
	if only := i.external[digest]; only != nil {
		delete(i.external, digest)
		i.contested[digest] = &contest{holder: only.id, keys: []*key{only}}
	}
	c := i.contested[digest]
	if c == nil {
		i.external[digest] = k
		return
	}
	holder := i.holder(digest)
	c.keys = append(c.keys, k)
	if holder != nil && k.issuedBefore(holder, digest) {
		c.holder = k.id
	}
}

// release ends what a key claims; there may be none.
func (i *index) release(k *key) {
	if k == nil {
		return
	}
	for _, digest := range k.claims() {
		i.releaseOne(digest, k)
	}
}

func (i *index) releaseOne(digest apikey.Digest, k *key) {
	if i.external[digest] == k {
		delete(i.external, digest)
		return
	}
	c := i.contested[digest]
	c.keys = slices.DeleteFunc(c.keys, func(other *key) bool { return other == k })
	switch {
	case len(c.keys) == 0:
		delete(i.contested, digest)
	case len(c.keys) == 1 && c.keys[0].id == c.holder:
		delete(i.contested, digest)
		i.external[digest] = c.keys[0]
	}
}
