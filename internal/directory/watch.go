package directory

import (
	"maps"
	"slices"
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

// putKey stores what the record restricts at once, and what it newly accepts once the handler has written it.
func (d *Directory) putKey(name string, k *key) error {
	d.mu.Lock()
	earlier, tombstone := d.index.keys[name], d.index.ended[published.KeyID(name)].tombstone
	change := newKeyChange(earlier, k, tombstone)
	d.index.putKey(name, change.key)
	d.mu.Unlock()
	change.notify(d.keyHandler, func() { d.complete(name, change.key.wait()) })
	return nil
}

func (d *Directory) deleteKey(name string) {
	d.mu.Lock()
	earlier := d.index.keys[name]
	d.index.dropKey(name)
	d.mu.Unlock()
	if earlier != nil {
		d.keyHandler.KeyRevoked(earlier.record())
	}
}

// complete stores the whole of a record that has waited for the handler, unless another one has replaced it since.
func (d *Directory) complete(name string, waited *wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.index.keys[name]; k != nil && waited != nil && k.wait() == waited {
		d.index.putKey(name, k.waiting(nil))
	}
}

// deferKey handles a record of a newer version. A known key goes on as its envelope permits; its digests are not written to Redis, as
// some of them may be unknown here. An unknown one can only be refused, and its key id is taken. A nil key has no readable envelope.
func (d *Directory) deferKey(name string, k *key) {
	d.mu.Lock()
	if k == nil {
		id := published.KeyID(name)
		if _, known := d.index.keys[name]; !known && !d.index.ended[id].tombstone {
			d.index.ended[id] = ended{merchant: d.index.ended[id].merchant}
		}
		d.mu.Unlock()
		return
	}
	earlier, tombstone := d.index.keys[name], d.index.ended[published.KeyID(name)].tombstone
	switch {
	case earlier == nil || earlier.unreadable || earlier.merchant != k.merchant:
		k.unreadable = true
	case k.order().Compare(earlier.order()) < 0 && !k.disabled:
		d.mu.Unlock()
		return // a record that was put back
	default:
		k = earlier.following(k)
	}
	if !k.disabled {
		d.index.putKey(name, k)
		d.mu.Unlock()
		return
	}
	change := newKeyChange(earlier, k, tombstone)
	d.index.putKey(name, change.key)
	d.mu.Unlock()
	change.notify(d.keyHandler, func() { d.complete(name, change.key.wait()) })
}

// deferTombstone handles a tombstone of a newer version. Its name says what was deleted.
func (d *Directory) deferTombstone(name string, _ published.Tombstone) {
	if kind, id, ok := published.TombstoneSubject(name); ok {
		_ = d.putTombstone(name, published.Tombstone{Kind: kind, ID: id})
	}
}

// putTombstone keeps the key id of a deleted ApiKey, so that no other key can accept its keys, and the id of a deleted Merchant.
func (d *Directory) putTombstone(_ string, tombstone published.Tombstone) error {
	d.mu.Lock()
	if tombstone.Kind == published.TombstoneMerchant {
		d.index.deleted[tombstone.ID] = true
		d.mu.Unlock()
		return nil
	}
	k, last := d.index.keys[published.KeyName(tombstone.ID)], d.index.ended[tombstone.ID]
	d.index.ended[tombstone.ID] = ended{merchant: last.merchant, tombstone: true}
	d.mu.Unlock()
	switch {
	case last.tombstone: // the handler was called for it before
	case k != nil:
		d.keyHandler.KeyEnded(k.record(), tombstone.EndedAt)
	case last.merchant != unique.Handle[string]{}:
		d.keyHandler.KeyEnded(published.KeyRecord{KeyID: tombstone.ID, MerchantID: last.merchant.Value()}, tombstone.EndedAt)
	}
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
