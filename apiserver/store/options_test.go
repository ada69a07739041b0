package store

import (
	"testing"
	"time"
)

func TestOpenRefusesOptionsThatBreakPromises(t *testing.T) {
	for desc, options := range map[string]Options{
		"a negative timeout":                  {Timeout: -time.Second},
		"a timeout of nothing":                {Timeout: time.Microsecond},
		"a negative pool":                     {PoolSize: -1},
		"sessions that end before their keys": {SessionRetention: 23 * time.Hour},
	} {
		options.URL = "redis://localhost:6379"
		if store, err := Open(options); err == nil {
			_ = store.Close()
			t.Errorf("%s: accepted", desc)
		}
	}
}
