package operator

import (
	"context"
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
	Memory       fixture.Memory `json:"memory,omitzero"`   // includes garbage
	LiveHeap     float64        `json:"liveHeap,omitzero"` // in bytes, after a collection
	Collected    fixture.Memory `json:"memoryAfterCollection,omitzero"`
	// Takeover is the time from the end of the leader to the next reconciliation.
	Takeover time.Duration `json:"takeoverNanoseconds,omitempty"`
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
