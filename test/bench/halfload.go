package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// openSample is what requests saw that came at a constant rate, whether or not the earlier ones had been answered.
type openSample struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"`
	P99       time.Duration `json:"p99Nanoseconds"`
	Max       time.Duration `json:"maxNanoseconds"`
	Success   float64       `json:"success"`
}

// measureHalfLoad asks a contestant at a constant rate.
func (s *stand) measureHalfLoad(ctx context.Context, c *contestant, perSecond int, settings settings) (openSample, error) {
	if err := s.renew(ctx); err != nil {
		return openSample{}, err
	}
	header := http.Header{}
	for _, line := range c.request.headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	targeter := vegeta.NewStaticTargeter(vegeta.Target{
		Method: c.request.method, URL: "http://" + c.server.address + c.request.path, Header: header, Body: []byte(c.request.body),
	})
	attacker := vegeta.NewAttacker(vegeta.Connections(128), vegeta.Workers(32), vegeta.MaxWorkers(512), vegeta.Timeout(5*time.Second))
	defer attacker.Stop()
	ignore := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer ignore()
	var metrics vegeta.Metrics
	warm := time.Now().Add(settings.warmUp)
	for result := range attacker.Attack(targeter, vegeta.Rate{Freq: perSecond, Per: time.Second}, settings.warmUp+settings.openLoop, c.name) {
		if result.Timestamp.After(warm) {
			metrics.Add(result)
		}
	}
	metrics.Close()
	const tolerable = 0.95 // as of load.Target
	if metrics.Success < tolerable {
		return openSample{}, fmt.Errorf("%s at %d requests/s: %v", c.name, perSecond, metrics.Errors)
	}
	return openSample{
		PerSecond: metrics.Throughput, P50: metrics.Latencies.P50, P99: metrics.Latencies.P99, Max: metrics.Latencies.Max, Success: metrics.Success,
	}, ctx.Err()
}

// halfLoad measures the product and its floor in turn, at half of what the product can do at most.
func (s *stand) halfLoad(ctx context.Context, all []*contestant, results *results, settings settings) error {
	most, measured := report.Middle(results.Samples[sampleKey(create, connections[len(connections)-1])], perSecond)
	if !measured {
		return nil
	}
	for range settings.rounds {
		for _, c := range all {
			if c.name != create && c.name != createFloor {
				continue
			}
			sample, err := s.measureHalfLoad(ctx, c, int(most/2), settings)
			if err != nil {
				return err
			}
			results.Open[c.name] = append(results.Open[c.name], sample)
		}
	}
	return nil
}

func p99(s openSample) float64 { return float64(s.P99) }

// compareHalfLoad compares medians: at the far end of the latencies, two rounds have little in common.
func (r *results) compareHalfLoad() {
	product, ok := report.Middle(r.Open[create], p99)
	floor, okFloor := report.Middle(r.Open[createFloor], p99)
	if ok && okFloor {
		r.Ratios["p99_half_load_vs_f2"] = product / floor
	}
}

func (r *results) printHalfLoad(out io.Writer) {
	for _, name := range []string{createFloor, create} {
		samples := r.Open[name]
		if len(samples) == 0 {
			continue
		}
		rate, _ := report.Middle(samples, func(s openSample) float64 { return s.PerSecond })
		p50, _ := report.Middle(samples, func(s openSample) time.Duration { return s.P50 })
		p99, _ := report.Middle(samples, func(s openSample) time.Duration { return s.P99 })
		fmt.Fprintf(out, "%s at a constant rate of %.0f/s: p50 %s, p99 %s\n", name, rate, rounded(p50), rounded(p99))
	}
}
