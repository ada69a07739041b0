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

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	credentialsNamespace = "merchant-operator-credentials"
	merchantName         = "Acme Coffee"
)

// publish publishes a merchant for each endpoint, as the operator does, and returns their ids.
func publish(ctx context.Context, config *rest.Config, endpoints []string) ([]string, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: credentialsNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the credentials namespace: %w", err)
	}
	var ids []string
	for i, endpoint := range endpoints {
		id, err := publishOne(ctx, client, fmt.Sprintf("merchant-%d", i), "http://"+endpoint+"/hooks")
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func publishOne(ctx context.Context, client *kubernetes.Clientset, name, url string) (string, error) {
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: name, UID: types.UID(name)},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: merchantName, State: v1alpha1.MerchantActive,
			RateLimit: v1alpha1.RateLimit{RequestsPerSecond: unlimitedRate, Burst: unlimitedRate},
			Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: 86_400, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
			Webhook:   &v1alpha1.Webhook{URL: url},
		},
	}
	configMap, err := published.EncodeMerchant(credentialsNamespace, published.NewMerchantRecord(merchant))
	if err != nil {
		return "", err
	}
	secret, err := published.EncodeWebhook(credentialsNamespace, published.NewWebhookRecord(merchant, time.Now()))
	if err != nil {
		return "", err
	}
	_, merchantErr := client.CoreV1().ConfigMaps(credentialsNamespace).Create(ctx, configMap, metav1.CreateOptions{})
	_, secretErr := client.CoreV1().Secrets(credentialsNamespace).Create(ctx, secret, metav1.CreateOptions{})
	return published.ID(merchant.UID), errors.Join(merchantErr, secretErr)
}
