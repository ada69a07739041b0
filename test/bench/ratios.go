package main

import (
	"fmt"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// compare fills in the ratios. Each is the median over the rounds of the ratio within one round, for what disturbs a round disturbs both.
func (r *results) compare() {
	for _, n := range connections {
		r.ratio(fmt.Sprintf("create_vs_f2@%d", n), create, createFloor, n, perSecond)
		r.ratio(fmt.Sprintf("public_vs_f2get@%d", n), publicRead, readFloor, n, perSecond)
		r.ratio(fmt.Sprintf("create_vs_naive@%d", n), create, naiveCreate, n, perSecond)
		r.ratio(fmt.Sprintf("cpu_create_vs_f2@%d", n), create, createFloor, n, cpu)
		r.ratio(fmt.Sprintf("f1_vs_unauthorized@%d", n), bareFloor, unauthorized, n, perSecond)
	}
	for _, pipeline := range rawPipelines {
		if cost, ok := report.Middle(r.Raw[rawKey(pipeline)], func(s rawSample) float64 { return s.ScriptCost }); ok {
			r.Ratios[fmt.Sprintf("redis_us_create@P%d", pipeline)] = cost
		}
	}
	for name, trips := range r.Trips {
		r.Ratios["commands_per_request@"+name] = trips
	}
	r.compareHalfLoad()
}

func perSecond(s sample) float64 { return s.PerSecond }

func cpu(s sample) float64 { return s.CPUMicros }

func (r *results) ratio(name, of, to string, connections int, value func(sample) float64) {
	above, below := r.Samples[sampleKey(of, connections)], r.Samples[sampleKey(to, connections)]
	ratios := make([]float64, min(len(above), len(below)))
	for i := range ratios {
		ratios[i] = value(above[i]) / value(below[i])
	}
	if ratio, ok := report.Middle(ratios, func(ratio float64) float64 { return ratio }); ok {
		r.Ratios[name] = ratio
	}
}
