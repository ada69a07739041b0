package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestStatusIsRebuiltFromTheRecord(t *testing.T) {
	f := upToDate()
	f.apiKey.Status = v1alpha1.ApiKeyStatus{ObservedGeneration: -1}
	f.record.LastRotation.Time = now.Add(-time.Hour).Add(700 * time.Millisecond)
	want := v1alpha1.ApiKeyStatus{
		ObservedGeneration: 5,
		KeyID:              published.ID(thisUID),
		Prefix:             "mk_live_x",
		KeyGeneration:      2,
		LastRotation:       &v1alpha1.RotationStatus{Time: metav1.NewTime(now.Add(-time.Hour)), Cause: v1alpha1.RotationTrigger},
		ObservedTrigger:    "a",
	}
	got := statusOf(f, decide(f).outcome)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(v1alpha1.ApiKeyStatus{}, "Conditions")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusNeverForgetsTheGeneration(t *testing.T) {
	f := upToDate().lost()
	f.merchantID = ""
	f.apiKey.Status.KeyGeneration = 7
	if got := statusOf(f, decide(f).outcome).KeyGeneration; got != 7 {
		t.Errorf("without a record, keyGeneration is %d, want 7", got)
	}
	f = upToDate()
	f.apiKey.Status.KeyGeneration = 7
	if got := statusOf(f, decide(f).outcome).KeyGeneration; got != 7 {
		t.Errorf("with an older record, keyGeneration is %d, want 7", got)
	}
}

func TestNextCheck(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  time.Duration // from now; 0: never
	}{
		"up to date":         {facts: upToDate()},
		"retention":          {facts: retained(upToDate(), 3700), want: 100 * time.Second},
		"retention over":     {facts: retained(upToDate(), 3600)},
		"a name to be free":  {facts: renamed(upToDate()), edit: func(f *facts) { f.targetTaken = true }, want: conflictRecheck},
		"no Merchant":        {facts: upToDate(), edit: func(f *facts) { f.merchantID = "" }},
		"retention comes at": {facts: retained(upToDate(), 3610), edit: func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(86400)) }, want: 10 * time.Second},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			if got := nextCheck(f, decide(f).outcome); got != tc.want {
				t.Errorf("checks again in %s, want %s", got, tc.want)
			}
		})
	}
}
