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
	FloorKeys int           `json:"floorApiKeys"`
	Empty     measured      `json:"empty"` // without objects
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
	keys, floorKeys := float64(r.Keys), float64(r.FloorKeys)
	writes, reads := operator.Requests.writes(), operator.Requests.reads()
	perKey := func(now, empty float64) float64 { return (now - empty) / keys }
	r.Ratios = report.Ratios{
		"operator_vs_floor":        floor.Took.Seconds() / floorKeys / (operator.Took.Seconds() / keys),
		"cpu_operator_vs_floor":    (operator.CPU + operator.ServerCPU).Seconds() / keys / ((floor.CPU + floor.ServerCPU).Seconds() / floorKeys),
		"writes_operator_vs_floor": writes / keys / (floor.Requests.writes() / floorKeys),
		"second_pass_writes":       restart.Requests.writes(),
		"second_pass_reads":        restart.Requests.reads(),
		"restart_seconds":          restart.Took.Seconds(),
		"operator_bytes_per_key":   perKey(float64(restart.Collected.Now), float64(r.Empty.Collected.Now)),
		"heap_bytes_per_key":       perKey(restart.LiveHeap, r.Empty.LiveHeap),
		"rewritten_secrets":        operator.Requests["PUT secrets"] + operator.Requests["DELETE secrets"],
		"writes_per_key":           writes / keys,
		"reads_per_key":            reads / keys,
		"calls_per_pass":           (writes + reads) / float64(operator.Passes),
	}
	if operator.Takeover > 0 {
		r.Ratios["takeover_seconds"] = operator.Takeover.Seconds()
	}

	fmt.Fprintf(out, "\n%s\n%d Merchants, %d ApiKeys, %d for the floor\n\n", r.Machine, r.Merchants, r.Keys, r.FloorKeys)
	table := report.Table(out, "\tseconds\tApiKeys/s\tCPU s\tkube-apiserver CPU s\twrites\treads\tpasses\tof ApiKeys\tfailed\tMiB\tpeak MiB\t")
	rows := []measured{floor, operator, restart}
	for i, name := range []string{"floor", "operator", "restart"} {
		m := rows[i]
		fmt.Fprintf(table, "%s\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t\n", name,
			m.Took.Seconds(), []float64{floorKeys, keys, keys}[i]/m.Took.Seconds(), m.CPU.Seconds(), m.ServerCPU.Seconds(),
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
