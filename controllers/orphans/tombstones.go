package orphans

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// tombstones is the controller for tombstones that have expired or are too many.
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

// Reconcile deletes a tombstone that has expired, and those of ApiKeys of its namespace that are too many. A tombstone that cannot be decoded
// stays.
func (t tombstones) Reconcile(ctx context.Context, configMap *corev1.ConfigMap) (reconcile.Result, error) {
	tombstone, err := published.DecodeTombstone(configMap)
	if err != nil || !t.Watched(tombstone.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	left := tombstone.Expires().Sub(t.Clock.Now())
	if left <= 0 {
		// With the answer the clocks are compared.
		if err := t.APIReader.Get(ctx, client.ObjectKeyFromObject(configMap), new(corev1.ConfigMap)); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		// The clock may have been set right meanwhile.
		if t.ClockWrong() || t.Clock.Now().Before(tombstone.Expires()) {
			return reconcile.Result{RequeueAfter: reconciler.ClockRecheck}, nil
		}
		return reconciler.Finish(t.remove(ctx, tombstone, configMap, "expired"))
	}
	if tombstone.Kind == published.TombstoneApiKey {
		if err := t.bound(ctx, tombstone.Source.Namespace); err != nil {
			return reconciler.Finish(err)
		}
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// bound deletes the tombstones of ApiKeys of a namespace that are more than the budget.
func (t tombstones) bound(ctx context.Context, namespace string) error {
	surplus, err := t.Tombstones.Surplus(ctx, namespace)
	if err != nil {
		return err
	}
	for _, e := range surplus {
		if err := t.remove(ctx, e.Tombstone, e.ConfigMap, "one of too many"); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a tombstone: first the claims of its key id, then the tombstone, so that an interrupted reconciliation is repeated.
func (t tombstones) remove(ctx context.Context, tombstone published.Tombstone, configMap *corev1.ConfigMap, why string) error {
	if tombstone.Kind == published.TombstoneApiKey {
		if err := t.releaseClaims(ctx, tombstone.ID); err != nil {
			return err
		}
	}
	doomed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configMap.Namespace, Name: configMap.Name}}
	preconditions := client.Preconditions{UID: &configMap.UID, ResourceVersion: &configMap.ResourceVersion}
	if err := client.IgnoreNotFound(t.Client.Delete(ctx, doomed, preconditions)); err != nil {
		return fmt.Errorf("delete the tombstone %s: %w", configMap.Name, err)
	}
	logf.FromContext(ctx).Info("deleted a tombstone", "tombstone", configMap.Name, "reason", why)
	return nil
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
