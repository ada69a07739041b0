package reconciler

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// One reconciliation at a time restricts an object, for a limited time, and a neighbour's is not held up.
func TestRestrict(t *testing.T) {
	b := &Base{}
	object, neighbour := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{UID: "b"}}
	restricting, release, ok := b.Restrict(t.Context(), object)
	if _, limited := restricting.Deadline(); !ok || !limited {
		t.Fatalf("begun: %t, limited: %t", ok, limited)
	}
	if _, _, ok := b.Restrict(t.Context(), object); ok {
		t.Error("two reconciliations restrict one object")
	}
	if _, end, ok := b.Restrict(t.Context(), neighbour); ok {
		end()
	} else {
		t.Error("the neighbour waits")
	}
	release()
	if _, end, ok := b.Restrict(t.Context(), object); ok {
		end()
	} else {
		t.Error("the object stays taken")
	}
	if restricting.Err() == nil {
		t.Error("the context outlives the restriction")
	}
}
