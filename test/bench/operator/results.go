package operator

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// results are all measurements of a run.
type results struct {
	Machine   string        `json:"machine"`
	Merchants int           `json:"merchants"`
	Keys      int           `json:"apiKeys"`
	Floor     []measured    `json:"floor"` // its two halves
	Operator  measured      `json:"operator"`
	Restart   measured      `json:"restart"`
	Ratios    report.Ratios `json:"ratios"`
}

// floor is the sum of both halves.
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
	r.Ratios = report.Ratios{
		"operator_vs_floor":        floor.Took.Seconds() / operator.Took.Seconds(),
		"cpu_operator_vs_floor":    (operator.CPU + operator.ServerCPU).Seconds() / (floor.CPU + floor.ServerCPU).Seconds(),
		"writes_operator_vs_floor": writes / floor.Requests.writes(),
		"second_pass_writes":       restart.Requests.writes(),
		"second_pass_seconds":      restart.Took.Seconds(),
		"writes_per_key":           writes / keys,
		"reads_per_key":            reads / keys,
		"calls_per_pass":           (writes + reads) / float64(operator.Passes),
	}

	fmt.Fprintf(out, "\n%s\n%d Merchants, %d ApiKeys\n\n", r.Machine, r.Merchants, r.Keys)
	table := report.Table(out, "\tseconds\tApiKeys/s\tCPU s\tkube-apiserver CPU s\twrites\treads\tpasses\tof ApiKeys\tfailed\tMiB\tpeak MiB\t")
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
