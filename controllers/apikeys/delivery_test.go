package apikeys

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

func renamed(f facts) facts {
	f.apiKey.Spec.Delivery = &v1alpha1.Delivery{SecretName: "new"}
	f.apiKey.Generation++
	return f
}

func retained(f facts, seconds int32) facts {
	f.apiKey.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: &seconds}
	return f
}

func TestDelivery(t *testing.T) {
	decisions{
		"one of an older generation": {
			facts: upToDate().with(deliveredSecret("till-key", 1)),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"one of a generation that was never published": {
			facts: upToDate().with(deliveredSecret("till-key", 3)),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"one whose annotation somebody broke": {
			facts: upToDate(), edit: func(f *facts) { f.delivered[0].Annotations[GenerationAnnotation] = "two" },
			want: decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"one that lost its race against a rotation over HTTP": {
			facts: upToDate(), edit: func(f *facts) { f.record.LastRotation.Cause = v1alpha1.RotationAPI },
			want: decision{Remove: []string{"till-key StaleDeliveryRemoved"}},
		},
		"one that this operator delivered, while another one published another key": {
			facts: upToDate(), edit: func(f *facts) { f.unpublished = unpublishedKey{2, apikey.NewDigest("delivered")} },
			want: decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"one that this operator delivered and published, though it got no answer": {
			facts: upToDate(), edit: func(f *facts) { f.unpublished = unpublishedKey{2, f.record.Current.Digest} },
		},
		"one that this operator delivered for a generation before": {
			facts: upToDate(), edit: func(f *facts) { f.unpublished = unpublishedKey{1, apikey.NewDigest("delivered")} },
		},
		"a stale one while a new key is due is written over": {
			facts: upToDate().with(deliveredSecret("till-key", 1)), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a stale one while its Merchant is away": {
			facts: upToDate().with(deliveredSecret("till-key", 1)), edit: func(f *facts) { f.merchantID = "" },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Repair: true, Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},

		"another name": {facts: renamed(upToDate()), want: decision{Move: "till-key"}},
		"another name, and the old one is stale": {
			facts: renamed(upToDate().with(deliveredSecret("till-key", 1))),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"another name that is taken": {
			facts: renamed(upToDate()), edit: func(f *facts) { f.targetTaken = true },
			want: decision{Outcome: v1alpha1.ReasonSecretConflict},
		},
		"another name, moved already": {
			facts: renamed(upToDate().with(deliveredSecret("till-key", 2), deliveredSecret("new", 2))),
			want:  decision{Remove: []string{"till-key DeliveryMoved"}},
		},
		"another name that holds a stale one: first that goes": {
			facts: renamed(upToDate().with(deliveredSecret("till-key", 2), deliveredSecret("new", 1))),
			want:  decision{Remove: []string{"new StaleDeliveryRemoved"}},
		},
		"another name, and no delivery to move": {
			facts: renamed(upToDate().with()),
			want:  decision{Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"a removed delivery": {facts: upToDate().with(), want: decision{Warnings: []string{v1alpha1.ReasonNotDelivered}}},
		"a removed delivery that people were warned of": {
			facts: upToDate().with(), edit: func(f *facts) {
				f.warned = reconciler.Warned{v1alpha1.DeliveredCondition: v1alpha1.ReasonNotDelivered}
			},
		},

		"retention that is not over": {facts: retained(upToDate(), 3601)},
		"retention that is over": {
			facts: retained(upToDate(), 3600),
			want:  decision{Remove: []string{"till-key RetentionEnded"}},
		},
		"retention that is over, and another name": {
			facts: renamed(retained(upToDate(), 3600)), edit: func(f *facts) { f.apiKey.Spec.Delivery.RetainSeconds = new(int32(3600)) },
			want: decision{Remove: []string{"till-key RetentionEnded"}},
		},
		"retention that was over before": {
			facts: retained(upToDate().with(), 60), edit: func(f *facts) { f.apiKey.Generation++ },
		},
	}.check(t)
}

// The operator issues no key that nobody would get, and replaces none that somebody has.
func TestDelivery_None(t *testing.T) {
	decisions{
		"no delivery, and a key issued over HTTP": {facts: upToDate().undelivered()},
		"no delivery, and nobody has a key":       {facts: upToDate().unissued(), want: decision{Outcome: v1alpha1.ReasonNotIssued}},
		"no delivery, the first key": {
			facts: upToDate().unissued().lost(), edit: func(f *facts) { f.apiKey.Status, f.seen = v1alpha1.ApiKeyStatus{}, knownVersion{} },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 1},
		},
		"no delivery, and the record is lost": {
			facts: upToDate().undelivered().lost(),
			want:  decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},
		"no delivery, and another Merchant of the name": {
			facts: upToDate().undelivered(), edit: func(f *facts) { f.merchantID = "merchant7654" },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 3},
		},
		"the delivery ends": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.Delivery, f.apiKey.Spec.Rotation.Trigger = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}, ""
			},
			want: decision{Repair: true, Remove: []string{"till-key " + reasonDeliveryEnded}},
		},
		"the delivery begins, and somebody has the key": {
			facts: upToDate().undelivered(), edit: func(f *facts) { f.apiKey.Spec.Delivery = nil },
		},
		"the delivery begins, and nobody has a key": {
			facts: upToDate().unissued(), edit: func(f *facts) { f.apiKey.Spec.Delivery = nil },
			want: decision{Outcome: v1alpha1.ReasonNotIssued, Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a schedule, a trigger and no delivery, which the CRD refuses": {
			facts: upToDate().undelivered(), edit: func(f *facts) {
				f.apiKey.Spec.Rotation.Trigger, f.apiKey.Spec.Rotation.EverySeconds = "b", new(int32(300))
			},
			want: decision{Repair: true},
		},
		"from external generation to no delivery": {
			facts: upToDate().external("mine"), edit: func(f *facts) {
				f.digest, f.apiKey.Spec.Delivery = nil, &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
			},
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
	}.check(t)
}

// rotate does what another operator does: it delivers and publishes the key of generation 3.
func rotate(t *testing.T, c client.Client, f facts) {
	t.Helper()
	secret := new(corev1.Secret)
	read(t, c, client.ObjectKey{Namespace: "shops", Name: "till-key"}, secret)
	secret.Annotations[GenerationAnnotation] = "3"
	secret.Data = map[string][]byte{dataAPIKey: []byte("of generation 3")}
	write(t, c, secret)
	secret = new(corev1.Secret)
	read(t, c, client.ObjectKey{Namespace: "credentials", Name: published.KeyName(f.record.KeyID)}, secret)
	next := f.record.Rotated(published.Current{Digest: apikey.NewDigest("of generation 3"), CreatedAt: now}, v1alpha1.RotationSchedule, 0, now)
	update, err := published.EncodeKey("credentials", next)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = update.Data
	write(t, c, secret)
}

// A process is frozen after it has read the ApiKey and the record. Meanwhile another operator delivers a new key in the Secret that the frozen
// one then reads, and is about to write over with one that it cannot publish. Nobody else would have the new key.
func TestIssue_FrozenBeforeTheSecret(t *testing.T) {
	f, once := upToDate(), false
	f.apiKey.Spec.Rotation.Trigger = "b"
	r := frozen(t, clocktesting.NewFakePassiveClock(now), func(stored client.Client, key client.ObjectKey) {
		if key.Name == "till-key" && !once {
			once = true
			rotate(t, stored, f)
		}
	}, stored(t, f)...)
	read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
	seen, err := gathered(t, r, f.apiKey)
	if err != nil {
		t.Fatal(err)
	}
	p := decide(seen)
	if p.newKey == nil {
		t.Fatal("no rotation is decided")
	}
	if _, err := r.apply(t.Context(), p); !reconciler.Superseded(err) {
		t.Errorf("the rotation: %v, want a lost race", err)
	}
	secret := new(corev1.Secret)
	read(t, r.Client, client.ObjectKey{Namespace: "shops", Name: "till-key"}, secret)
	if got := string(secret.Data[dataAPIKey]); got != "of generation 3" {
		t.Error("the delivered key was written over")
	}
}

// A process is frozen as above, and takes the Secret for a stale one.
func TestRemoveDelivered_FrozenBeforeTheSecret(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, c client.Client, f facts){
		"a rotation": rotate,
		"a delivery that is wanted again": func(t *testing.T, c client.Client, f facts) {
			t.Helper()
			apiKey := new(v1alpha1.ApiKey)
			read(t, c, client.ObjectKeyFromObject(f.apiKey), apiKey)
			apiKey.Spec.Delivery = nil
			apiKey.Generation++
			write(t, c, apiKey)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate()
			if name != "a rotation" {
				f.apiKey.Spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
			}
			once := false
			r := frozen(t, clocktesting.NewFakePassiveClock(now), func(stored client.Client, key client.ObjectKey) {
				if key.Name == "till-key" && !once {
					once = true
					meanwhile(t, stored, f)
				}
			}, stored(t, f)...)
			r.Secrets.Cache = oneDelivered{}
			read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
			seen, err := gathered(t, r, f.apiKey)
			if err != nil {
				t.Fatal(err)
			}
			remove := removals(seen)
			if len(remove) != 1 {
				t.Fatalf("%d removals are decided, want one", len(remove))
			}
			if err := r.removeDelivered(t.Context(), &seen, remove); !reconciler.Superseded(err) {
				t.Errorf("the removal: %v, want a lost race", err)
			}
			read(t, r.Client, client.ObjectKey{Namespace: "shops", Name: "till-key"}, new(corev1.Secret))
		})
	}
}

func read(t *testing.T, c client.Client, key client.ObjectKey, object client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}
