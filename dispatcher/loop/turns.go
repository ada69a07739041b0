package loop

import (
	"maps"
	"slices"
)

// InTurn returns one item of each namespace, then a second one of each, and so on, beginning with the namespace behind this one. The items of a
// namespace keep their order.
func InTurn[T any](items []T, namespace func(T) string, behind string) []T {
	byNamespace := map[string][]T{}
	for _, item := range items {
		byNamespace[namespace(item)] = append(byNamespace[namespace(item)], item)
	}
	namespaces := slices.Sorted(maps.Keys(byNamespace))
	first, is := slices.BinarySearch(namespaces, behind)
	if is {
		first++
	}
	namespaces = slices.Concat(namespaces[first:], namespaces[:first])
	ordered := make([]T, 0, len(items))
	for len(namespaces) > 0 {
		namespaces = slices.DeleteFunc(namespaces, func(namespace string) bool {
			own := byNamespace[namespace]
			ordered, byNamespace[namespace] = append(ordered, own[0]), own[1:]
			return len(own) == 1
		})
	}
	return ordered
}
