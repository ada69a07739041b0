package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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

func TestWhatBecomesOfDeliveries(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  decision
	}{
		"one of an older generation": {
			facts: settled().with(deliveredSecret("till-key", 1)),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}},
		},
		"one of a generation that was never published": {
			facts: settled().with(deliveredSecret("till-key", 3)),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}},
		},
		"one whose annotation somebody broke": {
			facts: settled(), edit: func(f *facts) { f.delivered[0].Annotations[GenerationAnnotation] = "two" },
			want: decision{Remove: []string{"till-key StaleDeliveryRemoved"}},
		},
		"one that lost its race against a rotation over HTTP": {
			facts: settled(), edit: func(f *facts) { f.record.LastRotation.Cause = v1alpha1.RotationAPI },
			want: decision{Remove: []string{"till-key StaleDeliveryRemoved"}},
		},
		"a stale one while a new key is due is written over": {
			facts: settled().with(deliveredSecret("till-key", 1)), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a stale one while its Merchant is away": {
			facts: settled().with(deliveredSecret("till-key", 1)), edit: func(f *facts) { f.merchantID = "" },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Repair: true, Remove: []string{"till-key StaleDeliveryRemoved"}},
		},

		"another name": {facts: renamed(settled()), want: decision{Move: "till-key"}},
		"another name, and the old one is stale": {
			facts: renamed(settled().with(deliveredSecret("till-key", 1))),
			want:  decision{Remove: []string{"till-key StaleDeliveryRemoved"}, Notes: []string{reasonNotDelivered}},
		},
		"another name that is taken": {
			facts: renamed(settled()), edit: func(f *facts) { f.targetTaken = true },
			want: decision{Outcome: v1alpha1.ReasonSecretConflict},
		},
		"another name, moved already": {
			facts: renamed(settled().with(deliveredSecret("till-key", 2), deliveredSecret("new", 2))),
			want:  decision{Remove: []string{"till-key DeliveryMoved"}},
		},
		"another name that holds a stale one: first that goes": {
			facts: renamed(settled().with(deliveredSecret("till-key", 2), deliveredSecret("new", 1))),
			want:  decision{Remove: []string{"new StaleDeliveryRemoved"}},
		},
		"another name, and no delivery to move": {
			facts: renamed(settled().with()),
			want:  decision{Notes: []string{reasonNotDelivered}},
		},
		"a removed delivery": {facts: settled().with()},

		"retention that is not over": {facts: retained(settled(), 3601)},
		"retention that is over": {
			facts: retained(settled(), 3600),
			want:  decision{Remove: []string{"till-key RetentionEnded"}},
		},
		"retention that is over, and another name": {
			facts: renamed(retained(settled(), 3600)), edit: func(f *facts) { f.apiKey.Spec.Delivery.RetainSeconds = new(int32(3600)) },
			want: decision{Remove: []string{"till-key RetentionEnded"}},
		},
		"retention that was over before": {
			facts: retained(settled().with(), 60), edit: func(f *facts) { f.apiKey.Generation++ },
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			if diff := cmp.Diff(tc.want, decided(decide(f))); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}
		})
	}
}
