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
