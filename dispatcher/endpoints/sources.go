package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// sources are the published objects that make up the index.
func (e *Endpoints) sources() []kube.Source {
	return []kube.Source{
		{
			Name: "merchant", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelMerchant,
			Index: kube.IndexFuncs[*corev1.ConfigMap, published.MerchantRecord]{
				DecodeFunc: published.DecodeMerchant, PutFunc: e.takeMerchant,
				DeleteFunc: e.forgetMerchant, InvalidFunc: e.undecodableMerchant, NamesFunc: names(e, e.merchants),
			},
		},
		{
			Name: "tombstone", Resource: "configmaps", Object: &corev1.ConfigMap{}, Label: published.LabelTombstone,
			Index: kube.IndexFuncs[*corev1.ConfigMap, published.Tombstone]{
				DecodeFunc: published.DecodeTombstone, PutFunc: e.takeTombstone,
				DeleteFunc: e.forgetTombstone, NamesFunc: names(e, e.withdrawn),
			},
		},
		{
			Name: "webhook", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelWebhook,
			Index: kube.IndexFuncs[*corev1.Secret, published.WebhookRecord]{
				DecodeFunc: published.DecodeWebhook, PutFunc: e.takeSecret,
				DeleteFunc: e.forgetSecret, NamesFunc: names(e, e.secrets),
			},
		},
		{
			Name: "key", Resource: "secrets", Object: &corev1.Secret{}, Label: published.LabelKey,
			Index: kube.IndexFuncs[*corev1.Secret, published.KeyRecord]{
				DecodeFunc: published.DecodeKey, PutFunc: e.takeKey,
				DeleteFunc: e.forgetKey, NamesFunc: names(e, e.keys),
			},
		},
	}
}

func names[R any](e *Endpoints, records map[string]R) func() []string {
	return func() []string {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return slices.Collect(maps.Keys(records))
	}
}

func (e *Endpoints) takeMerchant(name string, record published.MerchantRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, known := e.merchants[name]
	e.merchants[name] = record
	delete(e.undecodable, name)
	if known && before.Webhook.Target() != record.Webhook.Target() ||
		record.Webhook != nil && (record.Webhook.TestTrigger != "" || e.refused(record.Webhook.URL)) {
		e.changed(record.MerchantID)
	}
	e.rotations.takeMerchant(record)
	return nil
}

func (e *Endpoints) forgetMerchant(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.merchants, name)
	delete(e.undecodable, name)
}

// undecodableMerchant remembers that the merchant has a published object.
func (e *Endpoints) undecodableMerchant(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.merchants, name)
	e.undecodable[name] = true
}

// takeTombstone ignores tombstones of keys.
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

func (e *Endpoints) forgetSecret(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.secrets, name)
}

func (e *Endpoints) takeKey(name string, record published.KeyRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys[name] = record.MerchantID
	merchant, known := e.merchants[published.MerchantName(record.MerchantID)]
	e.rotations.takeKey(record, merchant.DisplayName, known)
	return nil
}

func (e *Endpoints) forgetKey(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.keys, name)
	e.rotations.forgetKey(name)
}

// MerchantIDs returns the ids of the published merchants whose state is in a bucket.
func (e *Endpoints) MerchantIDs(bucket session.Bucket) []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var ids []string
	for _, merchant := range e.merchants {
		if session.MerchantBucket(merchant.MerchantID) == bucket {
			ids = append(ids, merchant.MerchantID)
		}
	}
	return ids
}

// KeyIDs returns the ids of the published keys whose state is in a bucket.
func (e *Endpoints) KeyIDs(bucket session.Bucket) []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var ids []string
	for name, merchantID := range e.keys {
		if session.MerchantBucket(merchantID) == bucket {
			ids = append(ids, published.KeyID(name))
		}
	}
	return ids
}

// HasKey reports whether a key of this id is published.
func (e *Endpoints) HasKey(keyID string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, known := e.keys[published.KeyName(keyID)]
	return known
}

// rotations reports rotated keys. A key may be seen before its merchant, whose name its event needs; it waits until
// then. The lock of the index guards it.
type rotations struct {
	report func(key published.KeyRecord, merchantName string)
	// waiting keys by merchant id and by the name of the key's published object.
	waiting map[string]map[string]published.KeyRecord
}

func (r rotations) takeKey(key published.KeyRecord, merchantName string, merchantKnown bool) {
	name := published.KeyName(key.KeyID)
	delete(r.waiting[key.MerchantID], name)
	switch {
	case key.Generation < 2 && key.LastRotation.Cause == v1alpha1.RotationInitial: // issued, and never rotated
	case merchantKnown:
		r.report(key, merchantName)
	default:
		if r.waiting[key.MerchantID] == nil {
			r.waiting[key.MerchantID] = map[string]published.KeyRecord{}
		}
		r.waiting[key.MerchantID][name] = key
	}
}

func (r rotations) takeMerchant(merchant published.MerchantRecord) {
	for _, key := range r.waiting[merchant.MerchantID] {
		r.report(key, merchant.DisplayName)
	}
	delete(r.waiting, merchant.MerchantID)
}

func (r rotations) forgetKey(name string) {
	for _, keys := range r.waiting {
		delete(keys, name)
	}
}
