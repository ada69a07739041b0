package main

import (
	"fmt"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// results are all measurements of a run.
type results struct {
	Machine report.Machine          `json:"machine"`
	Trips   map[string]float64      `json:"redisCommandsPerRequest"`
	Samples map[string][]sample     `json:"samples"` // by name and connections, in the order of the rounds
	Raw     map[string][]rawSample  `json:"redisBenchmark"`
	Open    map[string][]openSample `json:"halfLoad"`
	Ratios  report.Ratios           `json:"ratios"`
}

func newResults(all []*contestant) *results {
	r := &results{
		Trips: map[string]float64{}, Samples: map[string][]sample{}, Raw: map[string][]rawSample{}, Open: map[string][]openSample{},
		Ratios: report.Ratios{},
	}
	for _, c := range all {
		r.Trips[c.name] = c.trips
	}
	return r
}

func sampleKey(name string, connections int) string { return fmt.Sprintf("%s@%d", name, connections) }

func rawKey(pipeline int) string { return fmt.Sprintf("P%d", pipeline) }

func (r *results) add(name string, connections int, measured sample) {
	key := sampleKey(name, connections)
	r.Samples[key] = append(r.Samples[key], measured)
}

func (r *results) addRaw(pipeline int, measured rawSample) {
	r.Raw[rawKey(pipeline)] = append(r.Raw[rawKey(pipeline)], measured)
}
