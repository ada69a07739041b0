package apikeys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// issue puts a new key in force. It is delivered before it is published: a pass that ends in between
// leaves a plaintext that the next one takes up, where the other order would leave a live key that
// nobody has. Publishing is a compare-and-swap; who loses it has published nothing.
func (r *Reconciler) issue(ctx context.Context, p plan) (published.KeyRecord, error) {
	current, err := r.obtain(ctx, p)
	if err != nil {
		return published.KeyRecord{}, err
	}
	record := p.newKey.base.Rotated(current, p.newKey.cause, p.newKey.overlap, p.now)
	if err := r.publish(ctx, p.published, record); err != nil {
		return published.KeyRecord{}, r.takeBack(ctx, p, err)
	}
	logf.FromContext(ctx).Info("issued a key", "keyID", record.KeyID, "generation", record.Generation, "cause", p.newKey.cause)
	r.Metrics.rotated(p.newKey.cause)
	r.tell(p.apiKey, reasonRotated, actionIssue, "Issued generation %d of the key, cause %s", record.Generation, p.newKey.cause)
	return record, nil
}

// takeBack deletes what was delivered as the first key, if publishing has shown that it is not: the
// next pass would take it for the one in force, of the same generation. The error is the failure, or
// why that could not be done, which must not pass for a lost race.
func (r *Reconciler) takeBack(ctx context.Context, p plan, failure error) error {
	if !p.first || !apierrors.IsAlreadyExists(failure) {
		return failure
	}
	if err := r.Secrets.Withdraw(ctx, p.apiKey, []string{p.target()}); err != nil {
		return fmt.Errorf("take back a key that is not in force: %w", err)
	}
	return failure
}

// obtain returns the key to be published, delivered if it was made here.
func (r *Reconciler) obtain(ctx context.Context, p plan) (published.Current, error) {
	if p.digest != nil {
		return published.Current{Digest: *p.digest, CreatedAt: p.now}, nil
	}
	key, found, err := r.resume(ctx, p)
	if err == nil && !found {
		key, err = r.makeAndDeliver(ctx, p)
	}
	if err != nil {
		return published.Current{}, err
	}
	return published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: p.now}, nil
}

// resume takes up the key that an interrupted pass delivered. Anything else in its place is not taken.
func (r *Reconciler) resume(ctx context.Context, p plan) (key apikey.Key, found bool, err error) {
	if !p.newKey.resume {
		return apikey.Key{}, false, nil
	}
	key, err = r.readKey(ctx, p.facts, p.target())
	return key, err == nil && key.ID() == p.newKey.base.KeyID, err
}

func (r *Reconciler) makeAndDeliver(ctx context.Context, p plan) (apikey.Key, error) {
	key, err := apikey.New(p.newKey.base.KeyID)
	if err != nil {
		return apikey.Key{}, fmt.Errorf("make a key: %w", err)
	}
	return key, r.deliver(ctx, p.facts, key, p.newKey.generation())
}

// readKey reads the plaintext from a delivered Secret; the zero Key: it holds none.
func (r *Reconciler) readKey(ctx context.Context, f facts, name string) (apikey.Key, error) {
	secretKey := client.ObjectKey{Namespace: f.apiKey.Namespace, Name: name}
	var secret corev1.Secret
	if err := r.Live.Get(ctx, secretKey, &secret); err != nil {
		return apikey.Key{}, fmt.Errorf("read the delivered Secret %s: %w", secretKey, err)
	}
	key, err := apikey.Parse(string(secret.Data[dataAPIKey]))
	if err != nil || !deliveries.OwnedBy(&secret, f.apiKey.UID) {
		return apikey.Key{}, nil //nolint:nilerr // what is no key is taken for none
	}
	return key, nil
}
