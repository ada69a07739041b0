package redis_test

import (
	"testing"
	"testing/fstest"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// A name that stands for no part, or for two, fails when the program starts.
func TestPart(t *testing.T) {
	lua := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	files := fstest.MapFS{
		"alone.lua":  lua("one\ntwo\n"),
		"shared.lua": lua("--- shared\n-- It is shared.\nthree\n--- other\nfour\n--- twice\nfive\n"),
		"twice.lua":  lua("six\n"),
		"own.lua":    lua("--- again\nseven\n--- own\n--- again\neight\n"),
	}
	for name, want := range map[string]string{
		"alone": "one\ntwo\n", "shared": "-- It is shared.\nthree\n", "other": "four\n",
		"twice": "", "again": "", "own": "", "missing": "",
	} {
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
