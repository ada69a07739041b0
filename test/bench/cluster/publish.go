package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

const (
	credentialsNamespace = "merchant-operator-credentials"
	unlimitedRate        = 1_000_000
	lifetimeSeconds      = 86_400
	publishers           = 8
)

// merchant is one that charges.
type merchant struct {
	name   string
	key    string
	bucket session.Bucket
}

// publish publishes merchants without limits and a key of each, as the operator does. Their ids follow from their numbers, so that
// every run has the same merchants in the same buckets.
func publish(ctx context.Context, config *rest.Config, count int) ([]merchant, error) {
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
	all, errs := make([]merchant, count), make([]error, publishers)
	var publishing sync.WaitGroup
	for worker := range publishers {
		publishing.Go(func() {
			for i := worker; i < count && errs[worker] == nil; i += publishers {
				all[i], errs[worker] = publishOne(ctx, client, i)
			}
		})
	}
	publishing.Wait()
	return all, errors.Join(errs...)
}

func publishOne(ctx context.Context, client kubernetes.Interface, number int) (merchant, error) {
	name := "merchant-" + strconv.Itoa(number)
	merchantUID, keyUID := types.UID("bench-"+name), types.UID("bench-key-"+name)
	merchantID := published.ID(merchantUID)
	configMap, err := published.EncodeMerchant(credentialsNamespace, published.MerchantRecord{
		MerchantID: merchantID, Namespace: "bench", Name: name, UID: merchantUID,
		DisplayName: "Acme Coffee " + strconv.Itoa(number), State: v1alpha1.MerchantActive,
		RateLimit: v1alpha1.RateLimit{RequestsPerSecond: unlimitedRate, Burst: unlimitedRate},
		Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: lifetimeSeconds, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	})
	if err != nil {
		return merchant{}, err
	}
	key, err := apikey.New(published.ID(keyUID))
	if err != nil {
		return merchant{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	secret, err := published.EncodeKey(credentialsNamespace, published.KeyRecord{
		KeyID: key.ID(), MerchantID: merchantID,
		Source:     published.Source{Namespace: "bench", Name: name, UID: keyUID},
		Generation: 1, Revision: 1, State: v1alpha1.ApiKeyActive,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	})
	if err != nil {
		return merchant{}, err
	}
	_, merchantErr := client.CoreV1().ConfigMaps(credentialsNamespace).Create(ctx, configMap, metav1.CreateOptions{})
	_, keyErr := client.CoreV1().Secrets(credentialsNamespace).Create(ctx, secret, metav1.CreateOptions{})
	return merchant{"Acme Coffee " + strconv.Itoa(number), key.Reveal(), session.BucketOf(merchantID)}, errors.Join(merchantErr, keyErr)
}
