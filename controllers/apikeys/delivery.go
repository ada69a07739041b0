package apikeys

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// GenerationAnnotation says which generation of the key a delivered Secret holds.
const GenerationAnnotation = "merchant-operator.io/generation"

// The data keys of a delivered Secret.
const (
	dataAPIKey = "apiKey"
	dataKeyID  = "keyID"
	dataPrefix = "prefix"
)

// delivered is the metadata of a delivered Secret.
type delivered struct{ metav1.ObjectMeta }

// generation is of the key the Secret holds; 0: unknown.
func (d delivered) generation() int64 {
	generation, err := strconv.ParseInt(d.Annotations[GenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// holds reports whether the Secret holds the key in force. A key made by a rotation over HTTP is in
// no Secret, whatever the annotation says: a rotation that lost its race against that one had
// delivered under the same generation.
func (d delivered) holds(record published.KeyRecord) bool {
	return d.generation() == record.Generation && record.LastRotation.Cause != v1alpha1.RotationAPI
}

// removal is a delivered Secret to be deleted, and the reason for people.
type removal struct {
	delivered
	reason, why string
}

// removals are the delivered Secrets that no longer serve: their key is not in force, or was to stay
// for a time that is over, or is delivered under another name by now.
func removals(f facts) []removal {
	record, known := f.ownRecord()
	if !known {
		return nil
	}
	var out []removal
	placed := f.deliveredAs(f.target())
	for _, d := range f.delivered {
		switch {
		case !d.holds(record):
			out = append(out, removal{d, reasonStaleDelivery, staleBecause(record)})
		case retentionOver(f):
			out = append(out, removal{d, reasonRetentionEnded, "delivery.retainSeconds is over"})
		case d.Name != f.target() && placed != nil && placed.holds(record):
			out = append(out, removal{d, reasonDeliveryMoved, "the key is now in Secret " + f.target()})
		}
	}
	return out
}

// staleBecause says why a delivered Secret does not hold the key of the record.
func staleBecause(record published.KeyRecord) string {
	if record.LastRotation.Cause == v1alpha1.RotationAPI {
		return fmt.Sprintf("its key was replaced through the API (generation %d)", record.Generation)
	}
	return fmt.Sprintf("it does not hold the current key (generation %d, cause %s)", record.Generation, record.LastRotation.Cause)
}

// misplaced returns the Secret that holds the key in force under a name that spec no longer gives,
// while no Secret of ours has that name; nil: none.
func misplaced(f facts) *delivered {
	record, known := f.ownRecord()
	if !known || f.target() == "" || f.deliveredAs(f.target()) != nil || retentionOver(f) {
		return nil
	}
	for i := range f.delivered {
		if f.delivered[i].holds(record) {
			return &f.delivered[i]
		}
	}
	return nil
}

// retentionEnd is when a delivered Secret has been there for long enough; zero: it stays.
func retentionEnd(f facts) time.Time {
	record, known := f.ownRecord()
	delivery := f.apiKey.Spec.Delivery
	if !known || delivery == nil || seconds(delivery.RetainSeconds) == 0 {
		return time.Time{}
	}
	return record.LastRotation.Time.Add(seconds(delivery.RetainSeconds))
}

func retentionOver(f facts) bool {
	end := retentionEnd(f)
	return !end.IsZero() && !f.now.Before(end)
}

// deliver writes the key into the Secret that the spec names.
func (r *Reconciler) deliver(ctx context.Context, f facts, key apikey.Key, generation int64) error {
	existing := f.deliveredAs(f.target())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.apiKey.Namespace, Name: f.target()},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			dataAPIKey: []byte(key.Reveal()),
			dataKeyID:  []byte(key.ID()),
			dataPrefix: []byte(key.Prefix()),
		},
	}
	if existing != nil {
		existing.DeepCopyInto(&secret.ObjectMeta)
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[GenerationAnnotation] = strconv.FormatInt(generation, 10)
	return r.Secrets.Deliver(ctx, f.apiKey, tenantsecret.LabelKey, secret)
}

// move delivers the key in force under the name that the spec gives now. The Secret of the old name
// is deleted by the next pass, which finds it superfluous, so a pass that ends in between loses
// nothing. What is not the key in force is not passed on.
func (r *Reconciler) move(ctx context.Context, p *plan) error {
	key, err := r.readKey(ctx, p.facts, p.move.Name)
	if err != nil {
		return err
	}
	if !key.Digest().Equal(p.record.Current.Digest) {
		r.Warn(p.apiKey, reasonNotDelivered, actionDeliver,
			"Secret %s does not hold the current key, so the key cannot be moved to Secret %s; change rotation.trigger to issue a new one",
			p.move.Name, p.target())
		return r.removeDelivered(ctx, p.apiKey, []removal{{*p.move, reasonStaleDelivery, "it does not hold the current key"}})
	}
	return r.deliver(ctx, p.facts, key, p.record.Generation)
}

// removeDelivered deletes delivered Secrets, if they are still as they were when that was decided.
func (r *Reconciler) removeDelivered(ctx context.Context, apiKey *v1alpha1.ApiKey, remove []removal) error {
	for _, d := range remove {
		if err := r.Secrets.Delete(ctx, &d.ObjectMeta, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}); err != nil {
			return err
		}
		r.Emit(apiKey, d.reason, actionDeliver, "Deleted Secret %s: %s", d.Name, d.why)
	}
	return nil
}
