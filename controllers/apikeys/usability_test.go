package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func expiring(f facts, after time.Duration) facts {
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(after)}
	return f
}

// A key that is refused is rotated and published like any other.
func TestAKeyThatDoesNotWork(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  decision
	}{
		"disabled, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.State, f.apiKey.Spec.Rotation.Trigger = v1alpha1.ApiKeyDisabled, "b"
			},
			want: decision{Outcome: v1alpha1.ReasonDisabled, Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"expired": {
			facts: expiring(upToDate(), 0), want: decision{Outcome: v1alpha1.ReasonExpired, Repair: true},
		},
		"about to expire": {
			facts: expiring(upToDate(), time.Nanosecond), want: decision{Repair: true},
		},
		"its Merchant is suspended": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = v1alpha1.MerchantSuspended },
			want: decision{Outcome: v1alpha1.ReasonMerchantSuspended},
		},
		"its Merchant is closed, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState, f.apiKey.Spec.Rotation.Trigger = v1alpha1.MerchantClosed, "b" },
			want: decision{Outcome: v1alpha1.ReasonMerchantClosed, Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
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
