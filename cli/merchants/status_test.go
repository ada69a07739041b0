package merchants

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestList_LastUse(t *testing.T) {
	now := time.Now()
	used := func(ago time.Duration) keyStatus {
		return keyStatus{LastUsed: new(metav1.NewTime(now.Add(-ago)))}
	}
	for desc, test := range map[string]struct {
		keys []keyStatus
		want string
	}{
		"no key":                  {nil, "<none>"},
		"a key that was not used": {[]keyStatus{{}}, "<none>"},
		"one key":                 {[]keyStatus{used(3 * time.Hour)}, "3h"},
		"the latest of several":   {[]keyStatus{{}, used(5 * time.Hour), used(3 * time.Hour), used(4 * time.Hour), {}}, "3h"},
		"an old key":              {[]keyStatus{used(5 * time.Hour), {Previous: []v1alpha1.PreviousKey{{LastUsedTime: new(metav1.NewTime(now.Add(-4 * time.Hour)))}}}}, "4h"},
	} {
		var table strings.Builder
		list := merchantList{Items: []merchantStatus{{Name: "acme", Keys: test.keys}}}
		if err := list.writeTable(&table, now); err != nil {
			t.Fatal(err)
		}
		header, line, _ := strings.Cut(table.String(), "\n")
		if at := strings.Index(header, "LAST USE"); !strings.HasPrefix(line[at:], test.want+" ") {
			t.Errorf("%s:\n%s", desc, &table)
		}
	}
}
