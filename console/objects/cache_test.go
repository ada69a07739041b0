package objects

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// What a tenant writes costs no memory, and only what is shown is kept.
func TestStrip(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Name: "till", Finalizers: []string{long}, Annotations: map[string]string{"a": long}}}
	for i := range 8 {
		condition := metav1.Condition{Type: fmt.Sprint("Other", i), Status: metav1.ConditionTrue, Message: long, Reason: long}
		key.Status.Conditions = append(key.Status.Conditions, condition)
		key.Status.PreviousKeys = append(key.Status.PreviousKeys, v1alpha1.PreviousKey{Prefix: long})
	}
	key.Status.Conditions[0].Type = v1alpha1.KeyLostCondition
	merchant := &v1alpha1.Merchant{ObjectMeta: key.ObjectMeta}
	merchant.Spec.Webhook = &v1alpha1.Webhook{URL: long}
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: long, LastSeen: metav1.Now()}}}
	merchant.Status.Conditions = key.Status.Conditions
	for _, object := range []client.Object{key, merchant} {
		slim, err := strip(object)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%+v", slim); strings.Contains(text, "xxx") || len(text) > 4000 {
			t.Errorf("%T: %d bytes are kept", object, len(text))
		}
	}
}
