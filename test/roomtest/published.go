package roomtest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const credentials = "credentials"

// NewMerchant returns the record of an active merchant with limits that no test reaches by accident. uid is of its Merchant.
func NewMerchant(uid types.UID, name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	merchant := published.MerchantRecord{
		MerchantID:  published.ID(uid),
		Namespace:   "shops",
		Name:        name,
		DisplayName: "Acme " + name,
		State:       v1alpha1.MerchantActive,
		Currency:    "EUR",
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	for _, c := range change {
		c(&merchant)
	}
	return merchant
}

// NewKey returns an active key of a merchant with all permissions, and its record. uid is of its ApiKey.
func NewKey(t testing.TB, uid types.UID, name, merchantID string, change ...func(*published.KeyRecord)) (apikey.Key, published.KeyRecord) {
	t.Helper()
	now := time.Now().UTC()
	issued := published.KeyRecord{
		KeyID:        published.ID(uid),
		MerchantID:   merchantID,
		Source:       published.Source{Namespace: "shops", Name: name, UID: uid},
		Generation:   1,
		Revision:     1,
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	}
	key, err := issued.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	issued.Current = published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}
	for _, c := range change {
		c(&issued)
	}
	return key, issued
}

// NewTestKey is NewKey for test mode.
func NewTestKey(t testing.TB, uid types.UID, name, merchantID string, change ...func(*published.KeyRecord)) (key apikey.Key, issued published.KeyRecord) {
	t.Helper()
	_, issued = NewKey(t, uid, name, merchantID, append([]func(*published.KeyRecord){func(r *published.KeyRecord) {
		r.Test = true
		var err error
		if key, err = r.NewKey(); err != nil {
			t.Fatal(err)
		}
		r.Current.Digest, r.Current.Prefix = key.Digest(), key.Prefix()
	}}, change...)...)
	return key, issued
}

// Merchant publishes a new merchant.
func (r *Replica) Merchant(name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	r.t.Helper()
	merchant := NewMerchant(types.UID(storetest.ID()), name, change...)
	r.PublishMerchant(merchant)
	return merchant
}

// PublishMerchant publishes a merchant that may be known.
func (r *Replica) PublishMerchant(merchant published.MerchantRecord) {
	r.t.Helper()
	configMap, err := published.EncodeMerchant(credentials, merchant)
	storetest.Must(r.t, err)
	storetest.Must(r.t, r.Directory.Informer("merchant").Update(configMap))
}

// UnpublishMerchant takes the merchant's published object away.
func (r *Replica) UnpublishMerchant(merchant published.MerchantRecord) {
	r.t.Helper()
	configMap, err := published.EncodeMerchant(credentials, merchant)
	storetest.Must(r.t, err)
	storetest.Must(r.t, r.Directory.Informer("merchant").Delete(configMap))
}

// WithdrawMerchant publishes what the operator publishes when a Merchant is deleted.
func (r *Replica) WithdrawMerchant(merchant published.MerchantRecord) {
	r.t.Helper()
	tombstone, err := published.EncodeTombstone(credentials, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: merchant.MerchantID, EndedAt: time.Now().UTC(),
		Source: published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(merchant.MerchantID)},
	})
	storetest.Must(r.t, err)
	storetest.Must(r.t, r.Directory.Informer("tombstone").Add(tombstone))
	r.UnpublishMerchant(merchant)
}

// Key publishes a key of the merchant and returns it in plaintext.
func (r *Replica) Key(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	r.t.Helper()
	key, issued := NewKey(r.t, types.UID(storetest.ID()), name, merchant.MerchantID, change...)
	r.PublishKey(issued)
	return key.Reveal()
}

// TestKey is Key for test mode.
func (r *Replica) TestKey(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	r.t.Helper()
	key, issued := NewTestKey(r.t, types.UID(storetest.ID()), name, merchant.MerchantID, change...)
	r.PublishKey(issued)
	return key.Reveal()
}

// Rotate publishes the next generation of a key without an overlap, and returns it in plaintext. The key before it is dead.
func (r *Replica) Rotate(issued published.KeyRecord) string {
	r.t.Helper()
	key, err := issued.NewKey()
	storetest.Must(r.t, err)
	issued.Generation++
	issued.Revision++
	issued.Current = published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: time.Now().UTC()}
	r.UpdateKey(issued)
	return key.Reveal()
}

// UpdateKey publishes another revision of a key.
func (r *Replica) UpdateKey(issued published.KeyRecord) {
	r.t.Helper()
	storetest.Must(r.t, r.Directory.Informer("key").Update(r.keySecret(issued)))
}

// PublishKey publishes a key that is not known.
func (r *Replica) PublishKey(issued published.KeyRecord) {
	r.t.Helper()
	storetest.Must(r.t, r.Directory.Informer("key").Add(r.keySecret(issued)))
}

// keySecret is the Secret as the Kubernetes API has it.
func (r *Replica) keySecret(issued published.KeyRecord) *corev1.Secret {
	r.t.Helper()
	secret, err := published.EncodeKey(credentials, issued)
	storetest.Must(r.t, err)
	secret.CreationTimestamp = metav1.Now()
	return secret
}
