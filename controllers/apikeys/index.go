package apikeys

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
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

// digestIndex finds the published keys with a digest that may belong to an externally generated key.
const digestIndex = "record.digests"

func recordDigests(object client.Object) []string {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Labels[published.Label] != published.LabelKey {
		return nil
	}
	record, err := published.DecodeKey(secret)
	if err != nil {
		return nil
	}
	var digests []string
	if record.HandledDigest != nil {
		digests = append(digests, record.HandledDigest.Hex())
	}
	if record.Current.Prefix == "" {
		digests = append(digests, record.Current.Digest.Hex())
	}
	for _, previous := range record.Previous {
		digests = append(digests, previous.Digest.Hex())
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// claimOwnerIndex finds the claims of an ApiKey by its namespace and name.
const claimOwnerIndex = "claim.source"

func claimOwner(object client.Object) []string {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Labels[published.Label] != published.LabelDigest {
		return nil
	}
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil {
		return nil
	}
	return []string{ownerName(claim.Source.Namespace, claim.Source.Name)}
}

func ownerName(namespace, name string) string { return namespace + "/" + name }

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := errors.Join(
		indexer.IndexField(ctx, &v1alpha1.ApiKey{}, merchantIndex, merchantName),
		index.ApiKeys.Add(ctx, indexer),
		indexer.IndexField(ctx, &corev1.Secret{}, digestIndex, recordDigests),
		indexer.IndexField(ctx, &corev1.Secret{}, claimOwnerIndex, claimOwner),
	); err != nil {
		return fmt.Errorf("index ApiKeys and published Secrets: %w", err)
	}
	return nil
}

// requestsForMerchant returns the ApiKeys of the Merchant.
func (r *Reconciler) requestsForMerchant(ctx context.Context, merchant client.Object) []reconcile.Request {
	return reconciler.Requests(ctx, r.Client, &v1alpha1.ApiKeyList{},
		client.InNamespace(merchant.GetNamespace()), client.MatchingFields{merchantIndex: merchant.GetName()})
}

// requestsForPublishedMerchant returns the ApiKeys of the Merchant of a ConfigMap.
func (r *Reconciler) requestsForPublishedMerchant(ctx context.Context, configMap client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, merchant := range reconciler.Sources(ctx, r.Client, index.Merchants, configMap.GetName()) {
		requests = append(requests, r.requestsForMerchant(ctx, &v1alpha1.Merchant{
			ObjectMeta: metav1.ObjectMeta{Namespace: merchant.Namespace, Name: merchant.Name},
		})...)
	}
	return requests
}

// requestsForSecret returns the ApiKey of the published Secret, or those that need the claim.
func (r *Reconciler) requestsForSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	return reconciler.Sources(ctx, r.Client, index.ApiKeys, secret.GetName())
}
