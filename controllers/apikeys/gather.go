package apikeys

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// gather reads the facts from the caches. They name the ApiKey also when there is an error.
func (r *Reconciler) gather(ctx context.Context, apiKey *v1alpha1.ApiKey) (facts, error) {
	f, err := r.read(ctx, r.Client, apiKey)
	if err != nil {
		return f, err
	}
	f.delivered, err = r.cachedDeliveries(ctx, apiKey)
	return f, err
}

// read reads all but the delivered Secrets.
func (r *Reconciler) read(ctx context.Context, from client.Reader, apiKey *v1alpha1.ApiKey) (facts, error) {
	f := facts{now: r.Clock.Now().UTC(), apiKey: apiKey}
	if text := apiKey.Spec.KeyDigest; text != "" {
		digest, err := apikey.ParseDigest(text)
		if err != nil {
			return f, fmt.Errorf("spec.keyDigest: %w", err)
		}
		f.digest = &digest
	}
	var merchant v1alpha1.Merchant
	merchantKey := client.ObjectKey{Namespace: apiKey.Namespace, Name: apiKey.Spec.MerchantRef.Name}
	switch err := from.Get(ctx, merchantKey, &merchant); {
	case err == nil && merchant.DeletionTimestamp.IsZero():
		f.merchantID = published.ID(merchant.UID)
	case client.IgnoreNotFound(err) != nil:
		return f, fmt.Errorf("read Merchant %s: %w", merchantKey, err)
	}
	secretKey := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.KeyName(published.ID(apiKey.UID))}
	secret := new(corev1.Secret)
	switch err := from.Get(ctx, secretKey, secret); {
	case err == nil:
		f.published = secret
		record, err := published.DecodeKey(secret)
		f.newer = errors.Is(err, published.ErrNewerVersion)
		if err == nil {
			f.record = &record
		}
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("read Secret %s: %w", secretKey, err)
	}
	err := r.gatherClaims(ctx, from, &f)
	return f, err
}

// cachedDeliveries finds this ApiKey's delivered Secrets, whatever their names.
func (r *Reconciler) cachedDeliveries(ctx context.Context, apiKey *v1alpha1.ApiKey) ([]delivered, error) {
	secrets, err := r.Secrets.Of(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	var found []delivered
	for _, secret := range secrets {
		found = append(found, delivered{secret})
	}
	return found, nil
}
