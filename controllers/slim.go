package controllers

import (
	"strings"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
)

// ownPrefix is of the labels and annotations that the operator writes.
const ownPrefix = "merchant-operator.io/"

// slim takes from a cached object what nobody reads, and lets objects share what is the same in all of them: of the memory of
// a delivered Secret's metadata that leaves a half. Whoever reads from a cache gets a copy.
type slim struct {
	// maps of one entry, by that entry. They are as many as the operator's labels, and generations of keys.
	maps sync.Map
}

type entry struct{ key, value string }

// transform is done once to each object that comes into a cache, before anybody sees it.
func (s *slim) transform(cached any) (any, error) {
	object, err := meta.Accessor(cached)
	if err != nil {
		return cached, err
	}
	object.SetManagedFields(nil)
	object.SetNamespace(shared(object.GetNamespace()))
	object.SetLabels(s.sharedMap(object.GetLabels()))
	object.SetAnnotations(s.sharedMap(object.GetAnnotations()))
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].APIVersion, owners[i].Kind = shared(owners[i].APIVersion), shared(owners[i].Kind)
	}
	object.SetOwnerReferences(owners)
	return cached, nil
}

func shared(text string) string { return unique.Make(text).Value() }

// sharedMap returns the one map of these entries, if it is the operator's own and nothing else is in it.
func (s *slim) sharedMap(entries map[string]string) map[string]string {
	if len(entries) != 1 {
		return entries
	}
	for key, value := range entries {
		if !strings.HasPrefix(key, ownPrefix) {
			return entries
		}
		one, _ := s.maps.LoadOrStore(entry{key, value}, entries)
		if known, ok := one.(map[string]string); ok {
			return known
		}
	}
	return entries
}
