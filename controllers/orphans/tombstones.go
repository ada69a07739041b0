package orphans

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// tombstones is the controller for expired tombstones.
type tombstones struct{ Sweeper }

// claimKeyIndex finds claims by the key id of their owner.
const claimKeyIndex = "claim.keyID"

func claimKey(object client.Object) []string {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Labels[published.Label] != published.LabelDigest {
		return nil
	}
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil {
		return nil
	}
	return []string{claim.KeyID}
}

// Reconcile deletes an expired tombstone: first the claims of its key id, then the tombstone, so that an interrupted
// reconciliation is repeated. A tombstone that cannot be decoded stays.
func (t tombstones) Reconcile(ctx context.Context, configMap *corev1.ConfigMap) (reconcile.Result, error) {
	tombstone, err := published.DecodeTombstone(configMap)
	if err != nil || !t.Watched(tombstone.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	if left := tombstone.Expires().Sub(t.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if tombstone.Kind == published.TombstoneApiKey {
		if err := t.releaseClaims(ctx, tombstone.ID); err != nil {
			return reconcile.Result{}, err
		}
	}
	preconditions := client.Preconditions{UID: &configMap.UID, ResourceVersion: &configMap.ResourceVersion}
	if err := client.IgnoreNotFound(t.Client.Delete(ctx, configMap, preconditions)); err != nil {
		return reconciler.Finish(fmt.Errorf("delete the tombstone %s: %w", configMap.Name, err))
	}
	logf.FromContext(ctx).Info("deleted an expired tombstone", "tombstone", configMap.Name)
	return reconcile.Result{}, nil
}

// releaseClaims deletes the claims of a deleted key id. A claim that was taken over has another key id or version.
func (t tombstones) releaseClaims(ctx context.Context, keyID string) error {
	var claims corev1.SecretList
	if err := t.Client.List(ctx, &claims, client.MatchingFields{claimKeyIndex: keyID}); err != nil {
		return fmt.Errorf("find the claims of key %s: %w", keyID, err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		err := writes.DeleteSecret(ctx, t.Client, claim.Namespace, claim.Name,
			client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
		if err != nil {
			return err
		}
	}
	return nil
}
