package subject

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Changes lets every change of an object pass but one of its status alone, and of finalizers but the
// loss of ours. The operator's own status writes must not call it again, or a failure whose message
// varies would be retried without any back-off. A status that was lost does pass, to be rebuilt.
func Changes(conditions func(client.Object) []metav1.Condition) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetUID() != after.GetUID() ||
			controllerutil.ContainsFinalizer(before, v1alpha1.Finalizer) && !controllerutil.ContainsFinalizer(after, v1alpha1.Finalizer) ||
			!maps.Equal(before.GetLabels(), after.GetLabels()) ||
			!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
			len(conditions(after)) == 0
	}}
}
