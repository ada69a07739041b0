package directory

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/feeds"
)

// sources are the published objects a directory is made of.
func (d *Directory) sources() []feeds.Source {
	return []feeds.Source{
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Kind: feeds.Decoded[*corev1.Secret, *key]{
				Decode: decodeKey, Take: d.takeKey, Forget: d.forgetKey, All: d.keyNames,
			},
		},
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Kind: feeds.Decoded[*corev1.ConfigMap, *Merchant]{
				Decode: decodeMerchant, Take: d.takeMerchant, Forget: d.forgetMerchant, All: d.merchantNames,
			},
		},
	}
}

func (d *Directory) takeKey(name string, k *key) error {
	d.announce(name, k)
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
