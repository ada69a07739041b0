package controllers

import (
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// maxKept is in bytes: no label is longer, nor any annotation that the operator writes.
const maxKept = 63

// strip is the transform of every cache: it takes from an object what the operator does not read, so
// that what a tenant writes into its metadata costs no memory here. Finalizers stay, for the operator
// writes their whole list. Nothing is remembered beside the object.
func strip(cached any) (any, error) {
	object, err := meta.Accessor(cached)
	if err != nil {
		return cached, err
	}
	object.SetManagedFields(nil)
	object.SetNamespace(shared(object.GetNamespace()))
	object.SetLabels(kept(object.GetLabels(), published.Label, deliveries.Label))
	object.SetAnnotations(kept(object.GetAnnotations(), apikeys.GenerationAnnotation))
	var owners []metav1.OwnerReference
	if owner := metav1.GetControllerOf(object); owner != nil {
		owner.APIVersion, owner.Kind = shared(owner.APIVersion), shared(owner.Kind)
		owners = append(owners, *owner)
	}
	object.SetOwnerReferences(owners)
	return cached, nil
}

// kept returns the entries of these keys in a new map, so that it shares no memory with the rest.
func kept(entries map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := entries[key]; ok && len(value) <= maxKept {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[key] = shared(value)
		}
	}
	return out
}

// shared returns the one copy of a text that is the same in many objects. It is freed with the last of them.
func shared(text string) string { return unique.Make(text).Value() }
