package endpoints

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// merchantConfigMaps are the published merchants.
type merchantConfigMaps struct{ index *Endpoints }

// Put takes a published merchant in.
func (m merchantConfigMaps) Put(object metav1.Object) error {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return fmt.Errorf("%w: not a ConfigMap", published.ErrInvalid)
	}
	record, err := published.DecodeMerchant(configMap)
	if err != nil {
		return err
	}
	record.IPAllowlist = nil // nothing of it is needed here
	m.index.mu.Lock()
	defer m.index.mu.Unlock()
	m.index.merchants[configMap.Name] = record
	m.index.rotations.merchantSeen(record)
	return nil
}

// Drop takes a published merchant out.
func (m merchantConfigMaps) Drop(name string) {
	m.index.mu.Lock()
	defer m.index.mu.Unlock()
	delete(m.index.merchants, name)
}

// Names are those of the published merchants that are in.
func (m merchantConfigMaps) Names() []string {
	m.index.mu.RLock()
	defer m.index.mu.RUnlock()
	return slices.Collect(maps.Keys(m.index.merchants))
}

// webhookSecrets are the published signing secrets.
type webhookSecrets struct{ index *Endpoints }

// Put takes a published signing secret in.
func (w webhookSecrets) Put(object metav1.Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%w: not a Secret", published.ErrInvalid)
	}
	record, err := published.DecodeWebhook(secret)
	if err != nil {
		return err
	}
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.index.secrets[secret.Name] = record
	return nil
}

// Drop takes a published signing secret out.
func (w webhookSecrets) Drop(name string) {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	delete(w.index.secrets, name)
}

// Names are those of the published signing secrets that are in.
func (w webhookSecrets) Names() []string {
	w.index.mu.RLock()
	defer w.index.mu.RUnlock()
	return slices.Collect(maps.Keys(w.index.secrets))
}

// keySecrets are the published keys, of which only rotations are of interest here.
type keySecrets struct{ index *Endpoints }

// Put passes on that a published key was rotated, if it was.
func (k keySecrets) Put(object metav1.Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%w: not a Secret", published.ErrInvalid)
	}
	record, err := published.DecodeKey(secret)
	if err != nil {
		return err
	}
	k.index.mu.Lock()
	defer k.index.mu.Unlock()
	merchant, known := k.index.merchants[published.MerchantName(record.MerchantID)]
	k.index.rotations.keySeen(record, merchant.DisplayName, known)
	return nil
}

// Drop forgets a key that was still waiting for its merchant.
func (k keySecrets) Drop(name string) {
	k.index.mu.Lock()
	defer k.index.mu.Unlock()
	k.index.rotations.keyGone(name)
}

// Names are those still waiting.
func (k keySecrets) Names() []string {
	k.index.mu.RLock()
	defer k.index.mu.RUnlock()
	return k.index.rotations.names()
}
