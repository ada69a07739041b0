package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	credentialsNamespace = "merchant-operator-credentials"
	merchantName         = "Acme Coffee"
	unlimitedRate        = 1_000_000
	lifetimeSeconds      = 86_400
)

// publish publishes a merchant without limits and a key of it, as the operator does, and returns the key.
func publish(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: credentialsNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create the credentials namespace: %w", err)
	}
	merchantUID, keyUID := types.UID("bench-merchant"), types.UID("bench-key")
	configMap, err := published.EncodeMerchant(credentialsNamespace, published.MerchantRecord{
		MerchantID: published.ID(merchantUID), Namespace: "bench", Name: "acme-coffee", UID: merchantUID,
		DisplayName: merchantName, State: v1alpha1.MerchantActive,
		RateLimit: v1alpha1.RateLimit{RequestsPerSecond: unlimitedRate, Burst: unlimitedRate},
		Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: lifetimeSeconds, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		// Its callers are checked, as those of a careful merchant are.
		IPAllowlist: []v1alpha1.IPBlock{"192.0.2.0/24", "198.51.100.0/24", "127.0.0.0/8"},
	})
	if err != nil {
		return "", err
	}
	key, err := apikey.New(published.ID(keyUID))
	if err != nil {
		return "", err
	}
	now := time.Now().UTC().Truncate(time.Second)
	secret, err := published.EncodeKey(credentialsNamespace, published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(merchantUID),
		Source:     published.Source{Namespace: "bench", Name: "till", UID: keyUID},
		Generation: 1, Revision: 1, State: v1alpha1.ApiKeyActive,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	})
	if err != nil {
		return "", err
	}
	_, merchantErr := client.CoreV1().ConfigMaps(credentialsNamespace).Create(ctx, configMap, metav1.CreateOptions{})
	_, keyErr := client.CoreV1().Secrets(credentialsNamespace).Create(ctx, secret, metav1.CreateOptions{})
	return key.Reveal(), errors.Join(merchantErr, keyErr)
}
