package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The operator issues no key that nobody would get, and replaces none that somebody has.
func TestKeysThatAreNotDelivered(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  decision
	}{
		"no delivery, and a key issued over HTTP": {facts: upToDate().undelivered()},
		"no delivery, and nobody has a key":       {facts: upToDate().unissued()},
		"no delivery, the first key": {
			facts: upToDate().unissued().lost(), edit: func(f *facts) { f.apiKey.Status, f.seen = v1alpha1.ApiKeyStatus{}, version{} },
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
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
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
