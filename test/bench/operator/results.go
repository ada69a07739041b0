package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// results are all measurements of a run.
type results struct {
	Machine   report.Machine `json:"machine"`
	Merchants int            `json:"merchants"`
	Keys      int            `json:"apiKeys"`
	Floor     []measured     `json:"floor"` // its two halves
	Operator  measured       `json:"operator"`
	Restart   measured       `json:"restart"`
	Ratios    report.Ratios  `json:"ratios"`
}

// measured is what one of them took and did.
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

func (m measured) with(s served) measured {
	m.Requests, m.ServerCPU = s.requests, s.cpu
	return m
}

// served is what the API server has done since it was started.
type served struct {
	requests requests
	cpu      time.Duration
}

// requests counts what the API server was asked for, as "verb resource", with "refused" before it when the answer was an error.
type requests map[string]float64

const refused = "refused "

// served asks the API server. What is not about these resources is its own business, and the benchmark's.
func (b *bench) served(ctx context.Context) served {
	resources := []string{merchantsResource, keysResource, "secrets", "configmaps", "events"}
	text := fixture.Must(b.plain.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
	metrics := fixture.Must(fixture.ParseMetrics(string(text)))
	s := served{requests{}, time.Duration(metrics.Sum("process_cpu_seconds_total") * float64(time.Second))}
	for _, series := range metrics["apiserver_request_total"].GetMetric() {
		resource := fixture.Label(series, "resource")
		if !slices.Contains(resources, resource) {
			continue
		}
		what := fixture.Label(series, "verb") + " " + resource
		if sub := fixture.Label(series, "subresource"); sub != "" {
			what += "/" + sub
		}
		if code := fixture.Label(series, "code"); !strings.HasPrefix(code, "2") && code != "0" { // 0 is of a watch
			what = refused + what
		}
		s.requests[what] += fixture.Value(series)
	}
	return s
}

// since returns what was done in between.
func (s served) since(earlier served) served {
	between := served{requests{}, s.cpu - earlier.cpu}
	for what, count := range s.requests {
		if more := count - earlier.requests[what]; more > 0 {
			between.requests[what] = more
		}
	}
	return between
}

// count adds up requests of some verbs, refused ones too, or those of all others.
func (r requests) count(others bool, verbs ...string) (sum float64) {
	for what, n := range r {
		verb, _, _ := strings.Cut(strings.TrimPrefix(what, refused), " ")
		if slices.Contains(verbs, verb) != others {
			sum += n
		}
	}
	return sum
}

func (r requests) writes() float64 { return r.count(true, "GET", "LIST", "WATCH") }

// reads are those of one object.
func (r requests) reads() float64 { return r.count(false, "GET") }

// floor is both halves together.
func (r *results) floor() measured {
	sum := measured{Requests: requests{}}
	for _, half := range r.Floor {
		sum.Took, sum.CPU, sum.ServerCPU = sum.Took+half.Took, sum.CPU+half.CPU, sum.ServerCPU+half.ServerCPU
		for what, count := range half.Requests {
			sum.Requests[what] += count
		}
	}
	return sum
}

// print writes tables for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	floor, operator, restart := r.floor(), r.Operator, r.Restart
	keys, writes, reads := float64(r.Keys), operator.Requests.writes(), operator.Requests.reads()
	r.Ratios["operator_vs_floor"] = floor.Took.Seconds() / operator.Took.Seconds()
	r.Ratios["cpu_operator_vs_floor"] = (operator.CPU + operator.ServerCPU).Seconds() / (floor.CPU + floor.ServerCPU).Seconds()
	r.Ratios["writes_operator_vs_floor"] = writes / floor.Requests.writes()
	r.Ratios["second_pass_writes"] = restart.Requests.writes()
	r.Ratios["second_pass_seconds"] = restart.Took.Seconds()
	r.Ratios["writes_per_key"] = writes / keys
	r.Ratios["reads_per_key"] = reads / keys
	r.Ratios["calls_per_pass"] = (writes + reads) / float64(operator.Passes)

	fmt.Fprintf(out, "\n%s\n%d Merchants, %d ApiKeys\n\n", r.Machine, r.Merchants, r.Keys)
	table := report.Table(out, "\tseconds\tApiKeys/s\town CPU s\tkube-apiserver CPU s\twrites\treads\tpasses\tof ApiKeys\tfailed\tMiB\tat most\t")
	rows := []measured{floor, operator, restart}
	for i, name := range []string{"floor", "operator", "restart"} {
		m := rows[i]
		fmt.Fprintf(table, "%s\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t\n", name,
			m.Took.Seconds(), keys/m.Took.Seconds(), m.CPU.Seconds(), m.ServerCPU.Seconds(),
			m.Requests.writes(), m.Requests.reads(), m.Passes, m.KeyPasses, m.FailedPasses, m.Memory.Now>>20, m.Memory.Most>>20)
	}
	_ = table.Flush() // errors of out are not handled anywhere
	fmt.Fprintln(out)

	all := map[string]bool{}
	for _, m := range rows {
		for what := range m.Requests {
			all[what] = true
		}
	}
	table = report.Table(out, "requests\tfloor\toperator\trestart\t")
	for _, what := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.0f\t\n", what, floor.Requests[what], operator.Requests[what], restart.Requests[what])
	}
	_ = table.Flush()
	r.Ratios.Print(out)
}
