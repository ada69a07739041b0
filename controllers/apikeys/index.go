package apikeys

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// merchantIndex finds the ApiKeys of a Merchant.
const merchantIndex = "spec.merchantRef.name"

func merchantName(object client.Object) []string {
	apiKey, ok := object.(*v1alpha1.ApiKey)
	if !ok {
		return nil
	}
	return []string{apiKey.Spec.MerchantRef.Name}
}

func publishedName(object client.Object) []string {
	return []string{published.KeyName(published.ID(object.GetUID()))}
}

func index(ctx context.Context, apiKeys client.FieldIndexer) error {
	if err := errors.Join(
		apiKeys.IndexField(ctx, &v1alpha1.ApiKey{}, merchantIndex, merchantName),
		apiKeys.IndexField(ctx, &v1alpha1.ApiKey{}, subject.PublishedNameIndex, publishedName),
	); err != nil {
		return fmt.Errorf("index ApiKeys: %w", err)
	}
	return nil
}

// keysOf returns the ApiKeys that name the Merchant.
func (r *Reconciler) keysOf(ctx context.Context, merchant client.Object) []reconcile.Request {
	return r.find(ctx, client.InNamespace(merchant.GetNamespace()), client.MatchingFields{merchantIndex: merchant.GetName()})
}

// keyOf returns the ApiKey that the published Secret is of.
func (r *Reconciler) keyOf(ctx context.Context, secret client.Object) []reconcile.Request {
	return r.find(ctx, client.MatchingFields{subject.PublishedNameIndex: secret.GetName()})
}

func (r *Reconciler) find(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var apiKeys v1alpha1.ApiKeyList
	if err := r.Client.List(ctx, &apiKeys, options...); err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "find the ApiKeys to look at")
	}
	var requests []reconcile.Request
	for i := range apiKeys.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&apiKeys.Items[i])})
	}
	return requests
}
