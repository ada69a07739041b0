package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	unlimitedRate   = 1_000_000
	lifetimeSeconds = 900
)

// population is the keys of one namespace, and the merchants they are of.
type population struct {
	namespace string
	merchants int
	keys      []string // what is presented
	since     time.Time
}

func newPopulation(namespace string, merchants, keys int) *population {
	return &population{namespace: namespace, merchants: merchants, keys: make([]string, keys), since: time.Now().UTC().Truncate(time.Second)}
}

func (p *population) merchantUID(i int) types.UID {
	return types.UID(fmt.Sprintf("%s-merchant-%d", p.namespace, i%p.merchants))
}

// merchant is the published object of the i-th one.
func (p *population) merchant(i int) (*corev1.ConfigMap, error) {
	return published.EncodeMerchant(p.namespace, published.MerchantRecord{
		MerchantID: published.ID(p.merchantUID(i)), UID: p.merchantUID(i),
		Namespace: "shops", Name: fmt.Sprintf("merchant-%d", i), DisplayName: fmt.Sprintf("Merchant %d", i), State: v1alpha1.MerchantActive,
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: unlimitedRate, Burst: unlimitedRate},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: lifetimeSeconds, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		IPAllowlist: []v1alpha1.IPBlock{"192.0.2.0/24", "198.51.100.0/24", "127.0.0.0/8"},
	})
}

// issue makes the published object of a key's generation, and keeps the key.
func (p *population) issue(i int, generation int64) (*corev1.Secret, error) {
	uid := types.UID(fmt.Sprintf("%s-key-%d", p.namespace, i))
	key, err := apikey.New(published.ID(uid))
	if err != nil {
		return nil, err
	}
	p.keys[i] = key.Reveal()
	return published.EncodeKey(p.namespace, published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(p.merchantUID(i)),
		Source:     published.Source{Namespace: "shops", Name: fmt.Sprintf("till-%d", i), UID: uid},
		Generation: generation, Revision: p.since.UnixMilli() + generation, State: v1alpha1.ApiKeyActive,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: p.since},
		LastRotation: published.RotationEvent{Time: p.since, Cause: v1alpha1.RotationInitial},
	})
}

// strangers are well-formed keys that nobody has.
func strangers(n int) ([]string, error) {
	keys := make([]string, n)
	for i := range keys {
		key, err := apikey.New(published.ID(types.UID(fmt.Sprintf("stranger-%d", i))))
		if err != nil {
			return nil, err
		}
		keys[i] = key.Reveal()
	}
	return keys, nil
}
