package cluster

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// suggestLimit is how many objects are read for a suggestion.
const suggestLimit = 1000

// suggest returns the name of an object of the namespace that somebody may have meant; empty: none is near, or the person may not
// list them.
func (c *Cluster) suggest(ctx context.Context, kind, name string) string {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
	if err := c.List(ctx, &list, client.InNamespace(c.Namespace), client.Limit(suggestLimit)); err != nil {
		return ""
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return nearest(name, names)
}

// nearest returns the most similar of the names; empty: more than a third of each is different.
func nearest(typed string, names []string) string {
	best, least := "", 0
	for _, name := range slices.Sorted(slices.Values(names)) {
		edits := distance(typed, name)
		if allowed := max(len(typed), len(name)) / 3; edits <= allowed && (best == "" || edits < least) {
			best, least = name, edits
		}
	}
	return best
}

// distance is how many characters to insert, remove, replace or swap with their neighbour make one name the other.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
