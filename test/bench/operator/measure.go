package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// measured is what the operator or the floor took and did.
type measured struct {
	Took         time.Duration  `json:"nanoseconds"`
	CPU          time.Duration  `json:"cpuNanoseconds"`
	ServerCPU    time.Duration  `json:"kubeAPIServerCPUNanoseconds"`
	Requests     requests       `json:"requests"`
	Passes       int            `json:"passes,omitempty"`
	KeyPasses    int            `json:"passesOverApiKeys,omitempty"`
	FailedPasses int            `json:"failedPasses,omitempty"`
	Memory       fixture.Memory `json:"memory,omitzero"`
}

// requests counts requests to the API server by "verb resource", with "refused" before it if the response was an error.
type requests map[string]float64

const refused = "refused "

func (r requests) sum(counts func(verb string) bool) (sum float64) {
	for what, n := range r {
		if verb, _, _ := strings.Cut(strings.TrimPrefix(what, refused), " "); counts(verb) {
			sum += n
		}
	}
	return sum
}

func (r requests) writes() float64 {
	return r.sum(func(verb string) bool { return !slices.Contains([]string{"GET", "LIST", "WATCH"}, verb) })
}

// reads are requests for one object.
func (r requests) reads() float64 { return r.sum(func(verb string) bool { return verb == "GET" }) }

// measure runs do, and adds what the API server did meanwhile.
func (b *bench) measure(ctx context.Context, do func(m *measured)) measured {
	m := measured{Requests: requests{}}
	before, cpu := b.served(ctx)
	do(&m)
	after, cpuAfter := b.served(ctx)
	m.ServerCPU = cpuAfter - cpu
	for what, count := range after {
		if more := count - before[what]; more > 0 {
			m.Requests[what] = more
		}
	}
	return m
}

// served asks the API server what it has done since its start. Requests for other resources are its own, or the benchmark's.
func (b *bench) served(ctx context.Context) (requests, time.Duration) {
	text := fixture.Must(b.plain.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
	metrics := fixture.Must(fixture.ParseMetrics(string(text)))
	all := requests{}
	for _, series := range metrics["apiserver_request_total"].GetMetric() {
		resource := fixture.Label(series, "resource")
		if !slices.Contains([]string{merchantsResource, keysResource, "secrets", "configmaps", "events"}, resource) {
			continue
		}
		what := fixture.Label(series, "verb") + " " + resource
		if sub := fixture.Label(series, "subresource"); sub != "" {
			what += "/" + sub
		}
		if code := fixture.Label(series, "code"); !strings.HasPrefix(code, "2") && code != "0" { // a watch has code 0
			what = refused + what
		}
		all[what] += fixture.Value(series)
	}
	return all, time.Duration(metrics.Sum("process_cpu_seconds_total") * float64(time.Second))
}

// measureFloor runs the floor over a part of its objects.
func (b *bench) measureFloor(ctx context.Context, f *floor, from, to int) measured {
	return b.measure(ctx, func(m *measured) {
		cpu := fixture.CPU(os.Getpid())
		m.Took = f.run(ctx, from, to)
		m.CPU = fixture.CPU(os.Getpid()) - cpu
		b.Progress("    %d ApiKeys in %s", to-from, m.Took.Round(time.Millisecond))
	})
}

// state is what the metrics of the operator say. Passes are finished reconciliations.
type state struct{ readyKeys, readyMerchants, keyPasses, passes, failed, queued float64 }

// How often the operator's metrics are read. A response costs it some milliseconds, which are measured too.
const (
	rarely = time.Second
	often  = 100 * time.Millisecond
)

// process is the operator that is measured.
type process struct {
	*fixture.Process

	bench   *bench
	started time.Time
}

// measureOperator starts an operator, waits until the work is done and nothing is queued, and stops it. It reads the metrics often
// only for the last tenth.
func (b *bench) measureOperator(ctx context.Context, every time.Duration, done func(at state, part float64) bool) measured {
	return b.measure(ctx, func(m *measured) {
		p := process{bench: b, started: time.Now(), Process: b.StartRole(ctx, "operator", b.Kubeconfig, operatorSide.credentials(),
			"--watch-namespaces", operatorSide.tenant(), "--leader-elect=false")} // it is the only one
		defer p.Stop()
		p.wait(ctx, every, func(at state) bool { return done(at, 0.9) })
		p.wait(ctx, often, func(at state) bool { return done(at, 1) })
		m.Took = time.Since(p.started)
		b.Progress("    done after %s", m.Took.Round(time.Millisecond))
		at := p.waitUntilIdle(ctx)
		m.Passes, m.KeyPasses, m.FailedPasses = int(at.passes), int(at.keyPasses), int(at.failed)
		m.CPU, m.Memory = p.CPU(), p.Memory()
	})
}

func (p process) state(ctx context.Context) (state, error) {
	const resources, passes = "merchant_operator_resources", "controller_runtime_reconcile_total"
	m, err := p.Metrics(ctx)
	return state{
		readyKeys: m.Sum(resources, "state", "ready", "kind", "ApiKey"), readyMerchants: m.Sum(resources, "state", "ready", "kind", "Merchant"),
		keyPasses: m.Sum(passes, "controller", "apikey"), passes: m.Sum(passes), failed: m.Sum(passes, "result", "error"),
		queued: m.Sum("workqueue_depth"),
	}, err
}

// wait polls until done, and prints the progress. ctx limits the time. An operator that does not respond for a minute has failed.
func (p process) wait(ctx context.Context, every time.Duration, done func(state) bool) state {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	printed, answered := time.Now(), time.Now()
	for {
		at, err := p.state(ctx)
		switch {
		case err == nil && done(at):
			return at
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil || time.Since(answered) > time.Minute: // there are errors until it listens
			fixture.Check(fmt.Errorf("wait for the operator: %w", errors.Join(context.Cause(ctx), err)))
		}
		if time.Since(printed) >= 5*time.Second {
			printed = time.Now()
			p.bench.Progress("    %4.0f s: %.0f ApiKeys ready, %.0f passes, %.0f queued",
				time.Since(p.started).Seconds(), at.readyKeys, at.passes, at.queued)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// waitUntilIdle waits until three polls in a row find no new pass and an empty queue.
func (p process) waitUntilIdle(ctx context.Context) state {
	last, same := -1.0, 0
	return p.wait(ctx, rarely, func(at state) bool {
		same++
		if at.passes != last || at.queued > 0 {
			last, same = at.passes, 0
		}
		return same >= 3
	})
}
