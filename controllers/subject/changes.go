package subject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Changes lets a change of the spec pass, the loss of our finalizer, and another object of the name. No
// cache holds labels and annotations of others. The operator's own status writes must not call it again, or a failure whose message
// varies would be retried without any back-off. A status that was lost does pass, to be rebuilt.
func Changes(conditions func(client.Object) []metav1.Condition) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetUID() != after.GetUID() ||
			controllerutil.ContainsFinalizer(before, v1alpha1.Finalizer) && !controllerutil.ContainsFinalizer(after, v1alpha1.Finalizer) ||
			len(conditions(after)) == 0
	}}
}
