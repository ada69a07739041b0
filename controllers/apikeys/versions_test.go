package apikeys

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Only a record that vanished, or was replaced by an older one, is remembered, until there is a newer one.
func TestVersions(t *testing.T) {
	at := func(issued, generation int64) version { return version{published.Order{Issued: issued}, generation} }
	var v versions
	for _, step := range []struct {
		name          string
		before, after version
		want          version
	}{
		{name: "rotated", before: at(10, 1), after: at(20, 2)},
		{name: "restored", before: at(20, 2), after: at(10, 1), want: at(20, 2)},
		{name: "restored to an older one still", before: at(10, 1), after: at(5, 1), want: at(20, 2)},
		{name: "gone", before: at(5, 1), want: at(20, 2)},
		{name: "put back", before: at(20, 2), after: at(20, 2)},
		{name: "unreadable", before: at(20, 2), want: at(20, 2)},
		{name: "replaced", before: at(0, 0), after: at(30, 3)},
	} {
		v.replaced("key", step.before, step.after)
		if diff := cmp.Diff(step.want, v.newest("key"), cmp.AllowUnexported(version{})); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	if len(v.seen) != 0 {
		t.Errorf("remembers %v", v.seen)
	}
}
