package reconciler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestChanges(t *testing.T) {
	matters := Changes(func(o client.Object) []metav1.Condition { return o.(*v1alpha1.Merchant).Status.Conditions })
	for desc, tc := range map[string]struct {
		edit func(*v1alpha1.Merchant)
		want bool
	}{
		"the spec":        {func(m *v1alpha1.Merchant) { m.Generation++ }, true},
		"a label":         {func(m *v1alpha1.Merchant) { m.Labels = map[string]string{"a": "b"} }, false},
		"an annotation":   {func(m *v1alpha1.Merchant) { m.Annotations = map[string]string{"a": "b"} }, false},
		"our finalizer":   {func(m *v1alpha1.Merchant) { m.Finalizers = nil }, true},
		"another's":       {func(m *v1alpha1.Merchant) { m.Finalizers = append(m.Finalizers, "example.com/theirs") }, false},
		"another object":  {func(m *v1alpha1.Merchant) { m.UID = "2" }, true},
		"a lost status":   {func(m *v1alpha1.Merchant) { m.Status = v1alpha1.MerchantStatus{} }, true},
		"our own status":  {func(m *v1alpha1.Merchant) { m.Status.Conditions[0].Message = "b"; m.ResourceVersion = "2" }, false},
		"a mere resync":   {func(*v1alpha1.Merchant) {}, false},
		"who wrote which": {func(m *v1alpha1.Merchant) { m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
	} {
		t.Run(desc, func(t *testing.T) {
			before := &v1alpha1.Merchant{
				ObjectMeta: metav1.ObjectMeta{UID: "1", Generation: 1, ResourceVersion: "1", Finalizers: []string{v1alpha1.Finalizer}},
				Status:     v1alpha1.MerchantStatus{Conditions: conditions.Ready("a").Conditions(nil, 1, start)},
			}
			after := before.DeepCopy()
			tc.edit(after)
			if got := matters.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %t, want %t", got, tc.want)
			}
		})
	}
}
