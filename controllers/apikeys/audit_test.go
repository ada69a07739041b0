package apikeys

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// A rotation that the status does not have has a line, and whatever else a status says leaves none out.
func TestUnreported(t *testing.T) {
	for name, row := range map[string]struct {
		generation int64
		status     func(*v1alpha1.ApiKeyStatus)
		want       []string
	}{
		"reported":              {5, func(*v1alpha1.ApiKeyStatus) {}, nil},
		"next":                  {6, func(*v1alpha1.ApiKeyStatus) {}, []string{"6 spec Trigger"}},
		"several":               {8, func(*v1alpha1.ApiKeyStatus) {}, []string{"6  ", "7  ", "8 spec Trigger"}},
		"lost status":           {5, func(s *v1alpha1.ApiKeyStatus) { *s = v1alpha1.ApiKeyStatus{} }, []string{"5 spec Trigger"}},
		"status ahead":          {5, func(s *v1alpha1.ApiKeyStatus) { s.KeyGeneration = 9 }, []string{"5 spec Trigger"}},
		"another rotation":      {5, func(s *v1alpha1.ApiKeyStatus) { s.LastRotation.Cause = v1alpha1.RotationAPI }, []string{"5 spec Trigger"}},
		"another time":          {5, func(s *v1alpha1.ApiKeyStatus) { s.LastRotation.Time = metav1.NewTime(now) }, []string{"5 spec Trigger"}},
		"no rotation in status": {5, func(s *v1alpha1.ApiKeyStatus) { s.LastRotation = nil }, []string{"5 spec Trigger"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate()
			status := v1alpha1.ApiKeyStatus{KeyGeneration: 5, LastRotation: &v1alpha1.RotationStatus{
				Time: metav1.NewTime(now.Add(-time.Hour)), Cause: v1alpha1.RotationTrigger,
			}}
			row.status(&status)
			f.record.Generation = row.generation
			f.record.LastRotation.Time = f.record.LastRotation.Time.Add(time.Millisecond) // which a status cannot hold
			var got []string
			for _, line := range unreported(status, *f.record) {
				got = append(got, fmt.Sprint(line.Generation, " ", line.By, " ", line.Cause))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A tenant who forges a status gets a bounded number of lines.
func TestUnreported_Bounded(t *testing.T) {
	f := upToDate()
	f.record.Generation = 1 << 40
	if got := len(unreported(v1alpha1.ApiKeyStatus{KeyGeneration: 1}, *f.record)); got != maxUnreported {
		t.Errorf("%d lines, want %d", got, maxUnreported)
	}
}

// Memory ends with the ApiKey, also of one without a finalizer, of which only the deletion of the record is seen.
func TestAudited_Forget(t *testing.T) {
	f := upToDate()
	secret, err := published.EncodeKey("credentials", *f.record)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Base: &reconciler.Base{Client: withoutApiKeys{}}}
	r.auditedRotation(*f.record)
	r.rememberVersions(t.Context()).Delete(event.DeleteEvent{Object: secret})
	if len(r.audited.keys) != 0 {
		t.Errorf("remembers %v", r.audited.keys)
	}
}

// withoutApiKeys is a cache that has none.
type withoutApiKeys struct{ client.Client }

func (withoutApiKeys) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}
