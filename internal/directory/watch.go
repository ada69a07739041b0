package directory

import (
	"maps"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// sources are the published objects that the directory watches.
func (d *Directory) sources() []kube.Source {
	return []kube.Source{
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Index: kube.IndexFuncs[*corev1.Secret, *key]{
				DecodeFunc: decodeKey, PutFunc: d.putKey, DeleteFunc: d.deleteKey, NewerFunc: d.deferKey, NamesFunc: d.keyNames,
			},
		},
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Index: kube.IndexFuncs[*corev1.ConfigMap, *Merchant]{
				DecodeFunc: decodeMerchant, PutFunc: d.putMerchant, DeleteFunc: d.deleteMerchant, NewerFunc: d.deferMerchant, NamesFunc: d.merchantNames,
			},
		},
		{
			Name: "tombstone", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelTombstone,
			Index: kube.IndexFuncs[*corev1.ConfigMap, published.Tombstone]{
				DecodeFunc: published.DecodeTombstone, PutFunc: d.putTombstone, DeleteFunc: d.deleteTombstone, NewerFunc: d.deferTombstone, NamesFunc: d.tombstoneNames,
			},
		},
	}
}

func (d *Directory) putKey(name string, k *key) error {
	k = d.notify(name, k)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.putKey(name, k)
	return nil
}

func (d *Directory) deleteKey(name string) {
	d.notify(name, nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.dropKey(name)
}

// deferKey handles a record of a newer version. A known key goes on as its envelope permits; its digests are not written to Redis, as
// some of them may be unknown here. An unknown one can only be refused, and its key id is taken. A nil key has no readable envelope.
func (d *Directory) deferKey(name string, k *key) {
	if k != nil {
		d.mu.RLock()
		earlier := d.index.keys[name]
		d.mu.RUnlock()
		switch {
		case earlier == nil || earlier.unreadable || earlier.merchant != k.merchant:
			k.unreadable = true
		case k.order().Compare(earlier.order()) < 0 && !k.disabled:
			return // a record that was put back
		default:
			k = earlier.following(k)
		}
		if k.disabled {
			k = d.notify(name, k)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.index.putKey(name, k)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := published.KeyID(name)
	if _, known := d.index.keys[name]; !known && !d.index.ended[id].tombstone {
		d.index.ended[id] = ended{merchant: d.index.ended[id].merchant}
	}
}

// deferTombstone handles a tombstone of a newer version. Its name says what was deleted.
func (d *Directory) deferTombstone(name string, _ published.Tombstone) {
	if kind, id, ok := published.TombstoneSubject(name); ok {
		_ = d.putTombstone(name, published.Tombstone{Kind: kind, ID: id})
	}
}

// putTombstone keeps the key id of a deleted ApiKey, so that no other key can accept its keys, and the id of a deleted Merchant.
func (d *Directory) putTombstone(_ string, tombstone published.Tombstone) error {
	if tombstone.Kind == published.TombstoneApiKey {
		d.notifyEnd(tombstone)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if tombstone.Kind == published.TombstoneMerchant {
		d.index.deleted[tombstone.ID] = true
		return nil
	}
	d.index.ended[tombstone.ID] = ended{merchant: d.index.ended[tombstone.ID].merchant, tombstone: true}
	return nil
}

func (d *Directory) deleteTombstone(name string) {
	kind, id, _ := published.TombstoneSubject(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind == published.TombstoneMerchant {
		delete(d.index.deleted, id)
		return
	}
	delete(d.index.ended, id)
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
	for id := range d.index.deleted {
		names = append(names, published.MerchantTombstoneName(id))
	}
	return names
}

func (d *Directory) keyNames() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.index.keys))
}

func (d *Directory) putMerchant(_ string, merchant *Merchant) error {
	id := unique.Make(merchant.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.merchants[id] = merchant
	return nil
}

// deferMerchant handles a record of a newer version: a known merchant goes on as the envelope permits, an unknown one cannot be served.
func (d *Directory) deferMerchant(_ string, merchant *Merchant) {
	if merchant == nil { // it has no readable envelope
		return
	}
	id := unique.Make(merchant.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if earlier := d.index.merchants[id]; earlier != nil && !earlier.Unreadable {
		following := *earlier
		following.State, following.Allowlist, following.ReportOnly = merchant.State, merchant.Allowlist, merchant.ReportOnly
		merchant = &following
	}
	d.index.merchants[id] = merchant
}

func (d *Directory) deleteMerchant(name string) {
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

// KeyHandler is called with each change of a key before the directory acts on it, so that no replica refuses a key which another
// one still accepts afterwards. Calls are in order, one at a time. The records have only what an override needs.
type KeyHandler interface {
	// KeyUpdated is called with a newer record of a key.
	KeyUpdated(record published.KeyRecord)
	// KeyRevoked is called with the last known record of a key whose published object was deleted, cannot be decoded, or belongs
	// to another merchant now.
	KeyRevoked(record published.KeyRecord)
	// KeyEnded is called for a key whose ApiKey was deleted, with the time in its tombstone, if that is at hand: nothing that was ever
	// published of the key is valid.
	KeyEnded(record published.KeyRecord, ended time.Time)
	// KeyUnverified is called with a record that may be older than what other replicas know: at the first sight of a key, or when
	// an older record replaces a newer one.
	KeyUnverified(record published.KeyRecord)
}

// notify calls the handler for a changed key; next is nil for a deleted one. It returns the key to store: one that is older than
// its predecessor is superseded, and so are later ones of the same issue.
func (d *Directory) notify(name string, next *key) *key {
	d.mu.RLock()
	earlier := d.index.keys[name]
	tombstone := d.index.ended[published.KeyID(name)].tombstone
	d.mu.RUnlock()
	switch {
	case next != nil && tombstone:
		d.keyHandler.KeyEnded(next.record(), time.Time{}) // its record is the newest
	case earlier == nil && next != nil:
		d.keyHandler.KeyUnverified(next.record())
	case earlier == nil:
	case next == nil:
		d.keyHandler.KeyRevoked(earlier.record())
	case next.merchant != earlier.merchant:
		d.keyHandler.KeyRevoked(earlier.record())
		d.keyHandler.KeyUpdated(next.record())
	default:
		return d.notifyChange(earlier, next)
	}
	return next
}

func (d *Directory) notifyChange(earlier, next *key) *key {
	order := next.order().Compare(earlier.order())
	restored := order < 0 && !next.superseded
	if restored || (earlier.superseded && next.issued == earlier.issued) {
		next.superseded = true
	}
	if restored {
		d.keyHandler.KeyUpdated(earlier.record()) // replicas that missed it must not accept the restored record
		d.keyHandler.KeyUnverified(next.record())
	}
	if order > 0 {
		d.keyHandler.KeyUpdated(next.record())
	}
	return next
}

// notifyEnd calls the handler for the tombstone of a key that is or was here.
func (d *Directory) notifyEnd(tombstone published.Tombstone) {
	id := tombstone.ID
	d.mu.RLock()
	k := d.index.keys[published.KeyName(id)]
	last := d.index.ended[id]
	d.mu.RUnlock()
	switch {
	case last.tombstone: // the handler was called for it before
	case k != nil:
		d.keyHandler.KeyEnded(k.record(), tombstone.EndedAt)
	case last.merchant != unique.Handle[string]{}:
		d.keyHandler.KeyEnded(published.KeyRecord{KeyID: id, MerchantID: last.merchant.Value()}, tombstone.EndedAt)
	}
}
