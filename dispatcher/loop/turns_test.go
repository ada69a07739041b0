package loop_test

import (
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
)

// One item of each namespace comes first, and a namespace that was served last comes last.
func TestInTurn(t *testing.T) {
	items := []string{"a/1", "a/2", "a/3", "c/1", "b/1", "b/2"}
	namespace := func(item string) string { return item[:1] }
	for behind, want := range map[string]string{
		"":   "a/1 b/1 c/1 a/2 b/2 a/3",
		"a":  "b/1 c/1 a/1 b/2 a/2 a/3",
		"bb": "c/1 a/1 b/1 a/2 b/2 a/3",
		"c":  "a/1 b/1 c/1 a/2 b/2 a/3",
	} {
		if got := strings.Join(loop.InTurn(items, namespace, behind), " "); got != want {
			t.Errorf("behind %q: %s, want %s", behind, got, want)
		}
	}
}
