package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// sources are the published objects the index is made of.
func (e *Endpoints) sources() []kube.Source {
	return []kube.Source{
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Kind: kube.Decoded[*corev1.ConfigMap, published.MerchantRecord]{
				Decode: published.DecodeMerchant, Take: e.takeMerchant,
				Forget: e.forgetMerchant, Spoilt: e.spoilMerchant, All: names(e, e.merchants),
			},
		},
		{
			Name: "tombstone", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelTombstone,
			Kind: kube.Decoded[*corev1.ConfigMap, published.Tombstone]{
				Decode: published.DecodeTombstone, Take: e.takeTombstone,
				Forget: e.forgetTombstone, All: names(e, e.withdrawn),
			},
		},
		{
			Name: "webhook", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelWebhook,
			Kind: kube.Decoded[*corev1.Secret, published.WebhookRecord]{
				Decode: published.DecodeWebhook, Take: e.takeSecret,
				Forget: e.forgetSecret, All: names(e, e.secrets),
			},
		},
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Kind: kube.Decoded[*corev1.Secret, published.KeyRecord]{
				Decode: published.DecodeKey, Take: e.takeKey,
				Forget: e.forgetKey, All: e.waitingKeys,
			},
		},
	}
}

func (e *Endpoints) takeMerchant(name string, record published.MerchantRecord) error {
	record.IPAllowlist = nil // nothing of it is needed here
	e.mu.Lock()
	defer e.mu.Unlock()
	e.merchants[name] = record
	delete(e.spoilt, name)
	e.rotations.merchantSeen(record)
	return nil
}

func (e *Endpoints) forgetMerchant(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.merchants, name)
	delete(e.spoilt, name)
}

// spoilMerchant remembers that something is published of the merchant.
func (e *Endpoints) spoilMerchant(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.merchants, name)
	e.spoilt[name] = true
}

// takeTombstone keeps nothing of a key's tombstone.
func (e *Endpoints) takeTombstone(name string, tombstone published.Tombstone) error {
	if tombstone.Kind == published.TombstoneMerchant {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.withdrawn[name] = true
	}
	return nil
}

func (e *Endpoints) forgetTombstone(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.withdrawn, name)
}

func (e *Endpoints) takeSecret(name string, record published.WebhookRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets[name] = record
	return nil
}

// takeKey keeps nothing of a key, unless it waits for its merchant: only rotations are of interest here.
func (e *Endpoints) takeKey(_ string, record published.KeyRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	merchant, known := e.merchants[published.MerchantName(record.MerchantID)]
	e.rotations.keySeen(record, merchant.DisplayName, known)
	return nil
}

func (e *Endpoints) forgetKey(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rotations.keyGone(name)
}

func (e *Endpoints) waitingKeys() []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.rotations.names()
}

func (e *Endpoints) forgetSecret(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.secrets, name)
}

func names[R any](e *Endpoints, records map[string]R) func() []string {
	return func() []string {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return slices.Collect(maps.Keys(records))
	}
}
