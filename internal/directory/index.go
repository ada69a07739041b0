package directory

import (
	"slices"
	"unique"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// index finds keys and merchants. Keys are stored by the name of their object, which is all that is known of one that was deleted
// or cannot be decoded. Keys change through putKey and dropKey only.
type index struct {
	keys      map[string]*key
	merchants map[unique.Handle[string]]*Merchant // by id
	// ended are key ids that had a record and have no usable one now.
	ended map[string]ended
	// external has keys by externally generated digest. Our own keys are found by key id only.
	external map[apikey.Digest]*key
	// contested are digests of several keys; they are not in external. The operator never publishes a digest twice, so somebody
	// with rights in the credentials namespace did.
	contested map[apikey.Digest]*contest
	// deleted are the ids of merchants with a tombstone.
	deleted map[string]bool
}

// ended is what remains of a key.
type ended struct {
	// merchant is the zero Handle if there never was a record.
	merchant unique.Handle[string]
	// tombstone: the ApiKey was deleted, not only its published object.
	tombstone bool
}

// contest is a digest of several keys. It belongs to the key to which it was issued first, live or not. No other key inherits it
// while one of them claims it.
type contest struct {
	holder string // a key id; its key may be deleted
	keys   []*key
}

func newIndex() index {
	return index{
		keys:      map[string]*key{},
		merchants: map[unique.Handle[string]]*Merchant{},
		ended:     map[string]ended{},
		external:  map[apikey.Digest]*key{},
		contested: map[apikey.Digest]*contest{},
		deleted:   map[string]bool{},
	}
}

// merchant returns the merchant with an id, nil if it is not published or has a tombstone. The
// tombstone alone ends a Merchant, because the operator may be unable to close and to delete the
// published ConfigMap.
func (i *index) merchant(id unique.Handle[string]) *Merchant {
	if i.deleted[id.Value()] {
		return nil
	}
	return i.merchants[id]
}

// find returns the only key that can accept a presented string, or nil. A string of our grammar has a key id; if a key with this
// id is or was here, no other key can accept the string. Other strings, and keys moved from another cluster, can only be
// externally generated.
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

// holder returns the key of an externally generated digest.
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
	i.release(earlier) // after the new claims, because a contest ends with its last claim
}

// dropKey removes a key and adds its key id to ended.
func (i *index) dropKey(name string) {
	k, known := i.keys[name]
	if !known {
		return
	}
	delete(i.keys, name)
	i.release(k)
	i.ended[k.id] = ended{merchant: k.merchant, tombstone: i.ended[k.id].tombstone}
}

// claim gives a digest to a key, or makes it contested. The record of a deleted ApiKey that was put back claims none: the digest may belong to
// the ApiKey that was created again with its name.
func (i *index) claim(digest apikey.Digest, k *key) {
	if i.ended[k.id].tombstone {
		return
	}
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

// release removes the claims of a key, which may be nil.
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
	if c == nil { // it claimed none
		return
	}
	c.keys = slices.DeleteFunc(c.keys, func(other *key) bool { return other == k })
	switch {
	case len(c.keys) == 0:
		delete(i.contested, digest)
	case len(c.keys) == 1 && c.keys[0].id == c.holder:
		delete(i.contested, digest)
		i.external[digest] = c.keys[0]
	}
}
