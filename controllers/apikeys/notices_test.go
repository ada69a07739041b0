package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

func TestWhatLiesAheadIsTold(t *testing.T) {
	const day = 24 * time.Hour
	for desc, test := range map[string]struct {
		expiresIn time.Duration // 0: never
		every     time.Duration // of a key that was rotated an hour ago; 0: no schedule
		want      []string
	}{
		"nothing":                      {0, 0, nil},
		"an expiry a week ahead":       {7 * day, 0, []string{v1alpha1.ExpiringSoonCondition}},
		"an expiry just further":       {7*day + time.Second, 0, nil},
		"an expiry that is over":       {-day, 0, []string{v1alpha1.ExpiringSoonCondition}},
		"a schedule far ahead":         {0, 90 * day, nil},
		"a schedule nearly elapsed":    {0, time.Hour + 5*time.Minute, []string{v1alpha1.RotatingSoonCondition}},
		"a schedule of a day, halfway": {0, 2 * time.Hour, nil},
		"both":                         {day, time.Hour + 5*time.Minute, []string{v1alpha1.ExpiringSoonCondition, v1alpha1.RotatingSoonCondition}},
	} {
		t.Run(desc, func(t *testing.T) {
			f := settled()
			if test.expiresIn != 0 {
				f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(test.expiresIn)}
			}
			if test.every != 0 {
				f.apiKey.Spec.Rotation.EverySeconds = new(int32(test.every / time.Second))
			}
			var events []string
			for _, n := range newNotices(f) {
				events = append(events, n.condition)
			}
			if diff := cmp.Diff(test.want, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			f.apiKey.Status = statusOf(f, subject.Ready("fine"))
			var conditions []string
			for _, c := range f.apiKey.Status.Conditions {
				if c.Type != v1alpha1.ReadyCondition {
					conditions = append(conditions, c.Type)
				}
			}
			if diff := cmp.Diff(test.want, conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if again := newNotices(f); len(again) != 0 {
				t.Errorf("told again: %v", again)
			}
		})
	}
}

func TestANoticeIsGivenInTimeAndTakenBack(t *testing.T) {
	f := settled()
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(30 * 24 * time.Hour)}
	if got, want := nextLook(f, decide(f).outcome), now.Add(23*24*time.Hour); !got.Equal(want) {
		t.Errorf("looks again at %s, want %s, a week before the expiry", got, want)
	}
	f.now = now.Add(25 * 24 * time.Hour)
	f.apiKey.Status = statusOf(f, subject.Ready("fine"))
	f.apiKey.Spec.ExpiresAt = nil
	for _, c := range statusOf(f, subject.Ready("fine")).Conditions {
		if c.Type == v1alpha1.ExpiringSoonCondition {
			t.Error("the notice stays although the expiry was taken back")
		}
	}
}
