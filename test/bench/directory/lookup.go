package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// sample is one measurement of requests.
type sample struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"`
	P99       time.Duration `json:"p99Nanoseconds"`
	CPUMicros float64       `json:"cpuMicrosPerRequest"` // of the replica
}

// What is asked, by the status of the answer: a read of the caller's own profile.
const (
	accepted = http.StatusOK
	refused  = http.StatusUnauthorized
)

// asks is a target that presents the keys one after the other, and not the same one twice: each look-up finds memory cold.
func (r *replica) asks(keys []string, status int) load.Target {
	head := []byte("GET /api/v1/merchant/me HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ")
	return load.Target{Address: r.address, Status: status, Request: func(connection, n int, before []byte) []byte {
		const apart = 7919 // connections, and the keys that follow each other
		key := keys[(connection*apart+n*apart)%len(keys)]
		if before == nil {
			return append(append(bytes.Clone(head), key...), "\r\n\r\n"...)
		}
		copy(before[len(head):], key)
		return before
	}}
}

// measureLookups asks both replicas in turn.
func (s *stand) measureLookups(ctx context.Context, results *results) error {
	results.Lookups = map[string][]sample{}
	const connections, warmUp = 16, 4 // parts of the length
	for range s.settings.rounds {
		for _, status := range []int{refused, accepted} {
			for _, one := range []struct {
				name       string
				replica    *replica
				population *population
			}{{knowsFew, s.knowsFew, s.few}, {knowsMany, s.knowsMany, s.many}} {
				keys := one.population.keys
				if status == refused {
					keys = s.strangers
				}
				measured, err := one.replica.measure(ctx, keys, status, load.Schedule{
					Connections: connections, WarmUp: s.settings.length / warmUp, Duration: s.settings.length,
				})
				if err != nil {
					return err
				}
				name := lookupName(one.name, status)
				results.Lookups[name] = append(results.Lookups[name], measured)
			}
		}
	}
	return nil
}

func (r *replica) measure(ctx context.Context, keys []string, status int, schedule load.Schedule) (sample, error) {
	before, err := process.CPU(r.PID())
	if err != nil {
		return sample{}, err
	}
	result, err := load.Run(ctx, r.asks(keys, status), schedule)
	if err != nil {
		return sample{}, fmt.Errorf("ask for answers of %d: %w", status, err)
	}
	after, err := process.CPU(r.PID())
	if err != nil {
		return sample{}, err
	}
	return sample{
		PerSecond: result.PerSecond(), P50: result.P50, P99: result.P99,
		CPUMicros: float64(after-before) / float64(time.Microsecond) / float64(result.Answered),
	}, nil
}
