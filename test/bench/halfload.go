package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	metrics, err := s.attack(ctx, c, vegeta.Rate{Freq: perSecond, Per: time.Second}, settings.warmUp, settings.openLoop)
	if err != nil {
		return openSample{}, err
	}
	return openSample{
		PerSecond: metrics.Throughput, P50: metrics.Latencies.P50, P99: metrics.Latencies.P99, Max: metrics.Latencies.Max, Success: metrics.Success,
	}, nil
}

// attack has vegeta ask a contestant, and leaves out what it measured before it was warm.
func (s *stand) attack(ctx context.Context, c *contestant, rate vegeta.Rate, warmUp, length time.Duration) (vegeta.Metrics, error) {
	if err := s.renew(ctx); err != nil {
		return vegeta.Metrics{}, err
	}
	header := http.Header{}
	for _, line := range c.request.headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	targeter := vegeta.NewStaticTargeter(vegeta.Target{
		Method: c.request.method, URL: "http://" + c.server.address + c.request.path, Header: header, Body: []byte(c.request.body),
	})
	const workers, most = 32, 128
	attacker := vegeta.NewAttacker(vegeta.Connections(most), vegeta.Workers(workers), vegeta.MaxWorkers(most), vegeta.Timeout(5*time.Second))
	defer attacker.Stop()
	ignore := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer ignore()
	var metrics vegeta.Metrics
	warm := time.Now().Add(warmUp)
	for result := range attacker.Attack(targeter, rate, warmUp+length, c.name) {
		if result.Timestamp.After(warm) {
			metrics.Add(result)
		}
	}
	metrics.Close()
	const tolerable = 0.95 // as of load.Target
	if metrics.Success < tolerable {
		return vegeta.Metrics{}, fmt.Errorf("%s with vegeta: %v", c.name, metrics.Errors)
	}
	return metrics, ctx.Err()
}

// halfLoad measures the product and its floor in turn, at half of what the product can do at most. What that is has vegeta find
// out, too: it is a client that itself needs more of the processors than the product does.
func (s *stand) halfLoad(ctx context.Context, all []*contestant, results *results, settings settings) error {
	at := slices.IndexFunc(all, func(c *contestant) bool { return c.name == create })
	if at < 0 {
		return nil
	}
	var unbounded vegeta.Rate
	most, err := s.attack(ctx, all[at], unbounded, settings.warmUp, settings.openLoop)
	if err != nil {
		return err
	}
	for range settings.rounds {
		for _, c := range all {
			if c.name != create && c.name != createFloor {
				continue
			}
			sample, err := s.measureHalfLoad(ctx, c, int(most.Throughput/2), settings)
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
