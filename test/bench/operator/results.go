package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
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
	Memory       process.Memory `json:"memory,omitzero"`
}

func (m measured) with(done load) measured {
	m.Requests, m.ServerCPU = done.requests, done.cpu
	return m
}

func (m measured) plus(other measured) measured {
	sum := load{m.Requests, m.ServerCPU}.plus(load{other.Requests, other.ServerCPU})
	return measured{Took: m.Took + other.Took, CPU: m.CPU + other.CPU}.with(sum)
}

// floor is both halves together.
func (r *results) floor() measured {
	sum := measured{Requests: requests{}}
	for _, half := range r.Floor {
		sum = sum.plus(half)
	}
	return sum
}

// compare fills in the ratios.
func (r *results) compare() {
	floor := r.floor()
	r.Ratios["operator_vs_floor"] = floor.Took.Seconds() / r.Operator.Took.Seconds()
	r.Ratios["cpu_operator_vs_floor"] = (r.Operator.CPU + r.Operator.ServerCPU).Seconds() / (floor.CPU + floor.ServerCPU).Seconds()
	r.Ratios["writes_operator_vs_floor"] = r.Operator.Requests.writes() / floor.Requests.writes()
	r.Ratios["second_pass_writes"] = r.Restart.Requests.writes()
	r.Ratios["second_pass_seconds"] = r.Restart.Took.Seconds()
	r.Ratios["writes_per_key"] = r.Operator.Requests.writes() / float64(r.Keys)
	r.Ratios["reads_per_key"] = r.Operator.Requests.looks() / float64(r.Keys)
	r.Ratios["calls_per_pass"] = (r.Operator.Requests.writes() + r.Operator.Requests.looks()) / float64(r.Operator.Passes)
}

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	r.compare()
	fmt.Fprintf(out, "\n%s\n%d Merchants, %d ApiKeys\n\n", r.Machine, r.Merchants, r.Keys)
	floor := r.floor()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tseconds\tApiKeys/s\town CPU s\tkube-apiserver CPU s\twrites\treads\tpasses\tof ApiKeys\tfailed\tMiB\tat most\t")
	for _, row := range []struct {
		name string
		measured
	}{{"floor", floor}, {"operator", r.Operator}, {"restart", r.Restart}} {
		fmt.Fprintf(table, "%s\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t\n", row.name,
			row.Took.Seconds(), float64(r.Keys)/row.Took.Seconds(), row.CPU.Seconds(), row.ServerCPU.Seconds(),
			row.Requests.writes(), row.Requests.looks(), row.Passes, row.KeyPasses, row.FailedPasses,
			row.Memory.Now>>20, row.Memory.Most>>20)
	}
	_ = table.Flush() // as much as is told of errors of out anywhere
	fmt.Fprintln(out)
	printRequests(out, map[string]requests{"floor": floor.Requests, "operator": r.Operator.Requests, "restart": r.Restart.Requests})
	fmt.Fprintln(out)
	r.Ratios.Print(out)
}

// printRequests writes what each asked the API server for.
func printRequests(out io.Writer, of map[string]requests) {
	all := map[string]bool{}
	for _, counted := range of {
		for what := range counted {
			all[what] = true
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "requests\tfloor\toperator\trestart\t")
	for _, what := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.0f\t\n", what, of["floor"][what], of["operator"][what], of["restart"][what])
	}
	_ = table.Flush()
}
