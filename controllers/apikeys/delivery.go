package apikeys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// GenerationAnnotation is the generation of the key in a delivered Secret.
const GenerationAnnotation = "merchant-operator.io/generation"

// LostSinceAnnotation is on a delivered Secret whose key replaced a lost one: the time since which the former keys are
// refused. The next rotation removes it.
const LostSinceAnnotation = "merchant-operator.io/key-lost-since"

// The data keys of a delivered Secret.
const (
	dataAPIKey = "apiKey"
	dataKeyID  = "keyID"
	dataPrefix = "prefix"
)

// delivered is the metadata of a delivered Secret.
type delivered struct{ metav1.ObjectMeta }

// generation is that of the key in the Secret; 0: unknown.
func (d delivered) generation() int64 {
	generation, err := strconv.ParseInt(d.Annotations[GenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// holds reports whether the Secret holds the current key. A key that was issued over HTTP is in no Secret, whatever
// the annotation says: a rotation that lost the race against it had delivered the same generation. So has one of this operator that lost
// the race against another operator.
func (f facts) holds(d delivered, record published.KeyRecord) bool {
	return d.generation() == record.Generation && record.LastRotation.Cause != v1alpha1.RotationAPI && !f.unpublished.insteadOf(record)
}

// holder returns the delivered Secret that holds the current key; nil: none.
func (f facts) holder(record published.KeyRecord) *delivered {
	for i := range f.delivered {
		if f.holds(f.delivered[i], record) {
			return &f.delivered[i]
		}
	}
	return nil
}

// delivery returns the condition Delivered; nil if keys are not delivered.
func delivery(f facts) *metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.DeliveredCondition, Status: metav1.ConditionFalse}
	record, known := f.ownRecord()
	say := func(reason, format string, args ...any) *metav1.Condition {
		condition.Reason, condition.Message = reason, fmt.Sprintf(format, args...)
		return &condition
	}
	switch {
	case f.target() == "":
		return nil
	case f.newer:
		condition.Status = metav1.ConditionUnknown
		return say(v1alpha1.ReasonNewerVersion, "A newer version of the operator wrote the published record")
	case !known:
		return say(v1alpha1.ReasonNotIssued, "There is no key to deliver: see condition Ready")
	case f.holder(record) != nil:
		condition.Status = metav1.ConditionTrue
		return say(v1alpha1.ReasonDelivered, "Secret %s holds the current key (generation %d)", f.holder(record).Name, record.Generation)
	case record.LastRotation.Cause == v1alpha1.RotationAPI:
		return say(v1alpha1.ReasonRotatedOverHTTP,
			"The key was rotated over HTTP: only the caller has it (generation %d). To have one delivered, change spec.rotation.trigger", record.Generation)
	case retentionOver(f):
		return say(v1alpha1.ReasonRetentionEnded, "The Secret was deleted after spec.delivery.retainSeconds")
	default:
		return say(v1alpha1.ReasonNotDelivered,
			"Secret %s with the current key was deleted or replaced. The key works but cannot be shown again; change spec.rotation.trigger to issue and deliver a new one",
			f.target())
	}
}

// removal is a delivered Secret to delete, with the reason for the event.
type removal struct {
	delivered
	reason, why string
}

// removals returns the delivered Secrets to delete: the key is not current, its retention is over, it is now in another
// Secret, or is to be in none.
func removals(f facts) []removal {
	record, known := f.ownRecord()
	if !known {
		return nil
	}
	var out []removal
	placed := f.deliveredAs(f.target())
	for _, d := range f.delivered {
		switch {
		case !f.holds(d, record):
			out = append(out, removal{d, reasonStaleDelivery, staleBecause(record)})
		case f.target() == "":
			out = append(out, removal{d, reasonDeliveryEnded, "delivery.policy is None. The key stays valid"})
		case retentionOver(f):
			out = append(out, removal{d, v1alpha1.ReasonRetentionEnded, "delivery.retainSeconds is over"})
		case d.Name != f.target() && placed != nil && f.holds(*placed, record):
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

// misplaced returns the Secret that holds the current key under a name that is no longer in the spec, if no Secret of
// this ApiKey has the new name; nil: none.
func misplaced(f facts) *delivered {
	record, known := f.ownRecord()
	if !known || f.target() == "" || f.deliveredAs(f.target()) != nil || retentionOver(f) {
		return nil
	}
	return f.holder(record)
}

// retentionEnd is when to delete a delivered Secret; zero: never.
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
	return !end.IsZero() && !f.clockWrong && !f.now.Before(end)
}

// deliver writes the key into the Secret of the spec. lostSince is the value of LostSinceAnnotation; zero: none. It writes over no key of a
// record that was published since the decision: see unchanged.
func (r *Reconciler) deliver(ctx context.Context, f *facts, key apikey.Key, generation int64, lostSince time.Time) error {
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
		if err := r.unchanged(ctx, *f); err != nil {
			return err
		}
		existing.DeepCopyInto(&secret.ObjectMeta)
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[GenerationAnnotation] = strconv.FormatInt(generation, 10)
	delete(secret.Annotations, LostSinceAnnotation)
	if !lostSince.IsZero() {
		secret.Annotations[LostSinceAnnotation] = lostSince.UTC().Format(time.RFC3339)
	}
	if err := r.Secrets.Deliver(ctx, f.apiKey, tenantsecret.LabelKey, secret); err != nil {
		return err
	}
	f.delivered = append(without(f.delivered, secret.Name), delivered{secret.ObjectMeta})
	return nil
}

// without returns the delivered Secrets except the one of that name, in a new slice.
func without(all []delivered, name string) []delivered {
	return slices.DeleteFunc(slices.Clone(all), func(d delivered) bool { return d.Name == name })
}

// move writes the current key into the Secret that the spec names now. The next reconciliation deletes the old
// Secret, so an interruption loses nothing. A key that is not current is not moved.
func (r *Reconciler) move(ctx context.Context, f *facts, from delivered) error {
	key, err := r.readKey(ctx, *f, from.Name)
	if err != nil {
		return err
	}
	if !key.Digest().Equal(f.record.Current.Digest) {
		return r.removeDelivered(ctx, f, []removal{{from, reasonStaleDelivery, "it does not hold the current key"}})
	}
	var lostSince time.Time
	if f.record.LastRotation.Cause == v1alpha1.RotationRecovery {
		lostSince = f.record.LastRotation.Time
	}
	return r.deliver(ctx, f, key, f.record.Generation, lostSince)
}

// removeDelivered deletes delivered Secrets, if neither they nor ApiKey and record have changed since the decision.
func (r *Reconciler) removeDelivered(ctx context.Context, f *facts, remove []removal) error {
	if len(remove) == 0 {
		return nil
	}
	if err := r.unchanged(ctx, *f); err != nil {
		return err
	}
	for _, d := range remove {
		if err := r.Secrets.Delete(ctx, &d.ObjectMeta, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}); err != nil {
			return err
		}
		f.delivered = without(f.delivered, d.Name)
		r.Emit(f.apiKey, d.reason, actionDeliver, "Deleted Secret %s: %s", d.Name, d.why)
	}
	return nil
}

// unchanged fails, as a lost race, if the spec of the ApiKey or its published Secret is another one than that of the facts. Of a process that
// was frozen while it read, both may be older than a Secret that another operator has delivered since.
func (r *Reconciler) unchanged(ctx context.Context, f facts) error {
	apiKey, err := reconciler.Current(ctx, r.Uncached(), f.apiKey)
	if err != nil {
		return err
	}
	secret, err := r.uncachedSecret(ctx, apiKey)
	if err != nil {
		return err
	}
	if apiKey.Generation != f.apiKey.Generation || resourceVersion(secret) != resourceVersion(f.secret) {
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.SchemeGroupVersion.Group, Resource: "apikeys"}, apiKey.Name,
			errors.New("it has changed since its delivered Secrets were read"))
	}
	return nil
}

// resourceVersion is empty for a Secret that does not exist.
func resourceVersion(secret *corev1.Secret) string {
	if secret == nil {
		return ""
	}
	return secret.ResourceVersion
}
