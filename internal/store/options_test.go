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
		"fewer than no replicas":              {SettlementReplicas: -1},
		"a negative wait for replicas":        {SettlementReplicas: 1, SettlementWait: -time.Second},
	} {
		options.URL = "redis://localhost:6379"
		if store, err := Open(options); err == nil {
			_ = store.Close()
			t.Errorf("%s: accepted", desc)
		}
	}
}
