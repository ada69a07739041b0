//go:build faults

package faults

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// abuse is what an attacker does to the API at host, with a key that is good; it returns how often it has tried. While
// looks holds what the API then takes.
type abuse func(t *testing.T, host, key string, while func()) (tried int, note string)

// beside lets a well-behaved client charge while somebody abuses the API.
func beside(t *testing.T, try abuse) (tried int, seen string) {
	t.Helper()
	s := newStage(t, 1, 0)
	s.merchant("coffee")
	key, other := s.apiKey("till", "coffee"), s.apiKey("other", "coffee")
	api := s.replicas[0]
	before := gauges(t, api.ops)
	done := make(chan struct{})
	var calling sync.WaitGroup
	var served atomic.Int64
	var slowest time.Duration
	calling.Go(func() {
		c := newCaller()
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := c.call(api.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
			if err != nil || got.status != http.StatusCreated {
				t.Errorf("the well-behaved client got %d, %v", got.status, err)
				return
			}
			served.Add(1)
			slowest = max(slowest, got.took)
		}
	})
	during := maps.Clone(before)
	tried, note := try(t, strings.TrimPrefix(api.public, "http://"), other, func() {
		now := gauges(t, api.ops)
		during[resident] = max(during[resident], now[resident])
		during[connections] = max(during[connections], now[connections])
	})
	target := served.Load() + 20
	eventually(t, "the well-behaved client is served", func() bool { return served.Load() > target || t.Failed() })
	close(done)
	calling.Wait()
	if during[connections] > maxConnections {
		t.Errorf("%.0f connections at once", during[connections])
	}
	if grown := during[resident] - before[resident] - min(float64(tried), maxConnections)*memoryEach; grown > spareMemory {
		t.Errorf("%.0f MB more for %d tries", (during[resident]-before[resident])/1e6, tried)
	}
	if slowest > bound {
		t.Errorf("the well-behaved client waited %s", slowest)
	}
	eventually(t, "goroutines and connections are as many as before", func() bool {
		now := gauges(t, api.ops)
		return now[goroutines] < before[goroutines]+20 && now[openFiles] < before[openFiles]+20
	})
	return tried, fmt.Sprintf("%s; %d charges beside it, the slowest %d ms; memory %.0f MB, %.0f at most, connections %.0f at most",
		note, served.Load(), slowest.Milliseconds(), before[resident]/1e6, during[resident]/1e6, during[connections])
}

const (
	// maxConnections is how many a replica holds unless it is told otherwise.
	maxConnections = 10_000
	// memoryEach is what an open connection may cost.
	memoryEach = 24 << 10
)
