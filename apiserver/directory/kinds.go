package directory

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/feeds"
)

// sources are the published objects a directory is made of.
func (d *Directory) sources() []feeds.Source {
	return []feeds.Source{
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Kind: feeds.Decoded[*corev1.Secret, published.KeyRecord]{
				Decode: published.DecodeKey, Take: d.takeKey, Forget: d.forgetKey, All: d.keyNames,
			},
		},
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Kind: feeds.Decoded[*corev1.ConfigMap, published.MerchantRecord]{
				Decode: published.DecodeMerchant, Take: d.takeMerchant, Forget: d.forgetMerchant, All: d.merchantNames,
			},
		},
	}
}

func (d *Directory) takeKey(secret *corev1.Secret, record published.KeyRecord) error {
	record.Source, record.HandledTrigger, record.HandledDigest = published.Source{}, "", nil
	entry := &key{
		record:    record,
		merchant:  published.MerchantName(record.MerchantID),
		createdAt: secret.CreationTimestamp.Time,
	}
	d.announce(secret.Name, &record)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.putKey(secret.Name, entry)
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

func (d *Directory) takeMerchant(configMap *corev1.ConfigMap, record published.MerchantRecord) error {
	allowlist, err := record.Allowlist()
	if err != nil {
		return err
	}
	entry := &Merchant{
		ID:          record.MerchantID,
		DisplayName: record.DisplayName,
		State:       record.State,
		Allowlist:   allowlist,
		RateLimit:   record.RateLimit,
		Sessions:    record.Sessions,
		TellCreated: record.Webhook != nil && slices.Contains(record.Webhook.Events, v1alpha1.EventSessionCreated),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.merchants[configMap.Name] = entry
	return nil
}

func (d *Directory) forgetMerchant(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.index.merchants, name)
}

func (d *Directory) merchantNames() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.index.merchants))
}
