package redis_test

import (
	"testing"
	"testing/fstest"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// A name that stands for no part fails when the program starts.
func TestPart(t *testing.T) {
	files := fstest.MapFS{"one.lua": {Data: []byte("own\n")}, "lib/one.lua": {Data: []byte("shared\n")}}
	for name, want := range map[string]string{"one": "own\n", "lib/one": "shared\n", "missing": "", "lib": ""} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if failed := recover() != nil; failed != (want == "") {
					t.Errorf("failed: %v", failed)
				}
			}()
			if got := redis.Part(files, name); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
