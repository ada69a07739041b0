package redis_test

import (
	"testing"
	"testing/fstest"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// What names its keys, arguments or parts wrongly fails when the program starts.
func TestNewScript_Names(t *testing.T) {
	for name, file := range map[string]string{
		"another number":   "local one_key, two_key = unpack(KEYS, 1, 3)\n\nreturn 1\n",
		"unknown part":     "local one_key = unpack(KEYS)\n-- uses: clock, missing\n\nreturn 1\n",
		"no name":          "local one_key = unpack(KEYS)\n\nreturn ARGV[2]\n",
		"unknown constant": "local one_key = unpack(KEYS)\n\nreturn const.KNOWN + const.UNKNOWN\n",
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nothing failed")
				}
			}()
			redis.NewScript("example", file, redis.Parts{"clock": redis.Clock}, redis.Constants{"const": {"KNOWN": redis.LuaInt(1)}})
		})
	}
}

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
