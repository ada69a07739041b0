package keys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/language"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// What a shop owner reads of an old key: that it is used, that it is not, or that nobody knows.
func TestNewRow_OldKeyUse(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	used := metav1.NewTime(now.Add(-5 * time.Minute))
	for status, want := range map[metav1.ConditionStatus]OldKeyUse{
		metav1.ConditionTrue:    {Used: true, Last: &used},
		metav1.ConditionFalse:   {Last: &used},
		metav1.ConditionUnknown: {Unknown: true, Last: &used},
		"":                      {Unknown: true, Last: &used},
	} {
		key := v1alpha1.ApiKey{}
		key.Status.PreviousKeys = []v1alpha1.PreviousKey{
			{ValidUntil: metav1.NewTime(now.Add(time.Hour))},
			{ValidUntil: metav1.NewTime(now.Add(time.Minute)), LastUsedTime: &used},
		}
		if status != "" {
			key.Status.Conditions = []metav1.Condition{{Type: v1alpha1.OldKeyInUseCondition, Status: status}}
		}
		if diff := cmp.Diff(want, NewRow(english(t), key, now).OldKeyUse); diff != "" {
			t.Errorf("status %q (-want +got):\n%s", status, diff)
		}
		if row := NewRow(english(t), key, now.Add(2*time.Hour)); row.Overlap != nil || row.OldKeyUse != (OldKeyUse{}) {
			t.Errorf("after the overlap: %+v", row.OldKeyUse)
		}
	}
}

// english are the words of the pages.
func english(t testing.TB) web.Words {
	t.Helper()
	w, err := web.LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
