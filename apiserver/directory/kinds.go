package directory

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// keySecrets are the published keys.
type keySecrets struct{ directory *Directory }

// Put takes a published key in.
func (k keySecrets) Put(object metav1.Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%w: not a Secret", published.ErrInvalid)
	}
	record, err := published.DecodeKey(secret)
	if err != nil {
		return err
	}
	record.Source, record.HandledTrigger, record.HandledDigest = published.Source{}, "", nil
	entry := &key{
		record:    record,
		merchant:  published.MerchantName(record.MerchantID),
		createdAt: secret.CreationTimestamp.Time,
	}
	k.directory.announce(secret.Name, &record)
	k.directory.mu.Lock()
	defer k.directory.mu.Unlock()
	k.directory.index.putKey(secret.Name, entry)
	return nil
}

// Drop takes a published key out.
func (k keySecrets) Drop(name string) {
	k.directory.announce(name, nil)
	k.directory.mu.Lock()
	defer k.directory.mu.Unlock()
	k.directory.index.dropKey(name)
}

// Names are those of the published keys that are in.
func (k keySecrets) Names() []string {
	k.directory.mu.RLock()
	defer k.directory.mu.RUnlock()
	return slices.Collect(maps.Keys(k.directory.index.keys))
}

// merchantConfigMaps are the published merchants.
type merchantConfigMaps struct{ directory *Directory }

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
	m.directory.mu.Lock()
	defer m.directory.mu.Unlock()
	m.directory.index.merchants[configMap.Name] = entry
	return nil
}

// Drop takes a published merchant out.
func (m merchantConfigMaps) Drop(name string) {
	m.directory.mu.Lock()
	defer m.directory.mu.Unlock()
	delete(m.directory.index.merchants, name)
}

// Names are those of the published merchants that are in.
func (m merchantConfigMaps) Names() []string {
	m.directory.mu.RLock()
	defer m.directory.mu.RUnlock()
	return slices.Collect(maps.Keys(m.directory.index.merchants))
}
