package apikeys

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

func TestWhatIsUpcomingIsReported(t *testing.T) {
	const day = 24 * time.Hour
	for desc, test := range map[string]struct {
		expiresIn time.Duration // 0: never
		every     time.Duration // of a key that was rotated an hour ago; 0: no schedule
		want      []string
	}{
		"nothing":                      {0, 0, nil},
		"an expiry a week ahead":       {7 * day, 0, []string{v1alpha1.ExpiringSoonCondition}},
		"an expiry just further":       {7*day + time.Second, 0, nil},
		"an expiry that is over":       {-day, 0, nil},
		"a schedule far ahead":         {0, 90 * day, nil},
		"a schedule nearly elapsed":    {0, time.Hour + 5*time.Minute, []string{v1alpha1.RotatingSoonCondition}},
		"a schedule of a day, halfway": {0, 2 * time.Hour, nil},
		"both":                         {day, time.Hour + 5*time.Minute, []string{v1alpha1.ExpiringSoonCondition, v1alpha1.RotatingSoonCondition}},
	} {
		t.Run(desc, func(t *testing.T) {
			f, w := upToDate(), newWarner()
			if test.expiresIn != 0 {
				f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(test.expiresIn)}
			}
			if test.every != 0 {
				f.apiKey.Spec.Rotation.EverySeconds = new(int32(test.every / time.Second))
			}
			for _, want := range [][]string{test.want, nil} { // it is emitted once
				if diff := cmp.Diff(want, w.pass(f, conditions.Ready("fine"))); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			}
			f.apiKey.Status = statusOf(f, conditions.Ready("fine"))
			var types []string
			for _, c := range f.apiKey.Status.Conditions {
				if !slices.Contains([]string{v1alpha1.ReadyCondition, v1alpha1.DeliveredCondition, v1alpha1.OldKeyInUseCondition}, c.Type) { // those of every key
					types = append(types, c.Type)
				}
			}
			if diff := cmp.Diff(test.want, types); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpcomingIsReportedInTimeAndTakenBack(t *testing.T) {
	f := upToDate()
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(30 * 24 * time.Hour)}
	if got, want := nextCheck(f, decide(f).outcome), 23*24*time.Hour; got != want {
		t.Errorf("checks again in %s, want %s, a week before the expiry", got, want)
	}
	f.now = now.Add(25 * 24 * time.Hour)
	f.apiKey.Status = statusOf(f, conditions.Ready("fine"))
	f.apiKey.Spec.ExpiresAt = nil
	for _, c := range statusOf(f, conditions.Ready("fine")).Conditions {
		if c.Type == v1alpha1.ExpiringSoonCondition {
			t.Error("the condition stays although the expiry was taken back")
		}
	}
}
