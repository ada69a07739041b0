package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// results are all measurements of a run.
type results struct {
	Machine machine                 `json:"machine"`
	Trips   map[string]float64      `json:"redisCommandsPerRequest"`
	Samples map[string][]sample     `json:"samples"` // by name and connections, in the order of the rounds
	Raw     map[string][]rawSample  `json:"redisBenchmark"`
	Open    map[string][]openSample `json:"halfLoad"`
	Ratios  map[string]float64      `json:"ratios"`
}

func newResults(all []*contestant) *results {
	r := &results{
		Trips: map[string]float64{}, Samples: map[string][]sample{}, Raw: map[string][]rawSample{}, Open: map[string][]openSample{},
		Ratios: map[string]float64{},
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

// middle is the median of a value of some samples; ok is false if there are none.
func middle[S any, V cmp.Ordered](samples []S, value func(S) V) (median V, ok bool) {
	if len(samples) == 0 {
		return median, false
	}
	values := make([]V, len(samples))
	for i, one := range samples {
		values[i] = value(one)
	}
	slices.Sort(values)
	return values[len(values)/2], true
}

// save writes all that was measured.
func (r *results) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
