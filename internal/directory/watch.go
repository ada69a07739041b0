package directory

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// sources are the published objects a directory is made of.
func (d *Directory) sources() []kube.Source {
	return []kube.Source{
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Kind: kube.Decoded[*corev1.Secret, *key]{
				Decode: decodeKey, Take: d.takeKey, Forget: d.forgetKey, Newer: d.deferKey, All: d.keyNames,
			},
		},
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Kind: kube.Decoded[*corev1.ConfigMap, *Merchant]{
				Decode: decodeMerchant, Take: d.takeMerchant, Forget: d.forgetMerchant, Newer: func(string) {}, All: d.merchantNames,
			},
		},
		{
			Name: "tombstone", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelTombstone,
			Kind: kube.Decoded[*corev1.ConfigMap, published.Tombstone]{
				Decode: published.DecodeTombstone, Take: d.takeTombstone, Forget: d.forgetTombstone, Newer: func(string) {}, All: d.tombstoneNames,
			},
		},
	}
}

func (d *Directory) takeKey(name string, k *key) error {
	k = d.announce(name, k)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.putKey(name, k)
	return nil
}

func (d *Directory) forgetKey(name string) {
	d.announce(name, nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.dropKey(name)
}

// deferKey keeps what is known of a key whose record is of a newer version. One that is not known is here nevertheless.
func (d *Directory) deferKey(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := published.KeyID(name)
	if _, known := d.index.keys[name]; !known && !d.index.ended[id].tombstone {
		d.index.ended[id] = ended{merchant: d.index.ended[id].merchant}
	}
}

// takeTombstone keeps the key id of an ApiKey that has ended; nobody else can ever accept its keys.
func (d *Directory) takeTombstone(_ string, tombstone published.Tombstone) error {
	if tombstone.Kind != published.TombstoneApiKey {
		return nil
	}
	d.announceEnd(tombstone.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.ended[tombstone.ID] = ended{merchant: d.index.ended[tombstone.ID].merchant, tombstone: true}
	return nil
}

func (d *Directory) forgetTombstone(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.index.ended, published.TombstoneKeyID(name))
}

func (d *Directory) tombstoneNames() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var names []string
	for id, e := range d.index.ended {
		if e.tombstone {
			names = append(names, published.KeyTombstoneName(id))
		}
	}
	return names
}

func (d *Directory) keyNames() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.index.keys))
}

func (d *Directory) takeMerchant(_ string, merchant *Merchant) error {
	id := unique.Make(merchant.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.merchants[id] = merchant
	return nil
}

func (d *Directory) forgetMerchant(name string) {
	id := unique.Make(published.MerchantID(name))
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.index.merchants, id)
}

func (d *Directory) merchantNames() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	names := make([]string, 0, len(d.index.merchants))
	for id := range d.index.merchants {
		names = append(names, published.MerchantName(id.Value()))
	}
	return names
}

// Announcer is told what the watch of keys brings before the directory acts on it. It makes the news
// known to replicas that have not heard them, so that no replica refuses a key which another one
// accepts afterwards. Its methods are called in the order of the news, one at a time. The records are no
// more than what tells whose the key is, its order, and which digests it accepts.
type Announcer interface {
	// Announce says that a key's record became newer.
	Announce(record published.KeyRecord)
	// Revoke says that a key is no more: its published object is gone, cannot be decoded, or is of
	// another merchant now. The record is the last that was known of it.
	Revoke(record published.KeyRecord)
	// End says that a key's ApiKey has really ended, so that nothing that was ever known of the key holds.
	End(record published.KeyRecord)
	// Check says that a record was seen that other replicas may know a newer one than: it was seen for the first
	// time, or was put back.
	Check(record published.KeyRecord)
}

// announce tells what is new about a key; next is nil when it is no more. It returns what is to be put in its place: a record that is
// older than the one before is superseded, and so is any of the same issue after it.
func (d *Directory) announce(name string, next *key) *key {
	d.mu.RLock()
	earlier := d.index.keys[name]
	tombstone := d.index.ended[published.KeyID(name)].tombstone
	d.mu.RUnlock()
	switch {
	case next != nil && tombstone:
		d.announcer.End(next.record())
	case earlier == nil && next != nil:
		d.announcer.Check(next.record())
	case earlier == nil:
	case next == nil:
		d.announcer.Revoke(earlier.record())
	case next.merchant != earlier.merchant:
		d.announcer.Revoke(earlier.record())
		d.announcer.Announce(next.record())
	default:
		return d.announceChange(earlier, next)
	}
	return next
}

func (d *Directory) announceChange(earlier, next *key) *key {
	order := next.order().Compare(earlier.order())
	putBack := order < 0 && !next.superseded
	if putBack || (earlier.superseded && next.issued == earlier.issued) {
		next.superseded = true
	}
	if putBack {
		d.announcer.Announce(earlier.record()) // whoever has not heard of it must not take what was put back
		d.announcer.Check(next.record())
	}
	if order > 0 {
		d.announcer.Announce(next.record())
	}
	return next
}

// announceEnd tells of the end of a key that is or was here.
func (d *Directory) announceEnd(id string) {
	d.mu.RLock()
	k := d.index.keys[published.KeyName(id)]
	last := d.index.ended[id]
	d.mu.RUnlock()
	switch {
	case last.tombstone: // it was told when the tombstone was first seen
	case k != nil:
		d.announcer.End(k.record())
	case last.merchant != unique.Handle[string]{}:
		d.announcer.End(published.KeyRecord{KeyID: id, MerchantID: last.merchant.Value()})
	}
}
