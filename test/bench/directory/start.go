package main

import (
	"context"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// start is one start of a replica.
type start struct {
	ReadySeconds float64        `json:"readySeconds"`
	CPUSeconds   float64        `json:"cpuSeconds"` // until it was ready
	HeapBytes    float64        `json:"heapBytes"`  // alive, after a collection
	Memory       process.Memory `json:"memory"`     // at that moment, and the most until then
}

// measureStarts starts replicas that know few and many keys in turn. The last of each goes on.
func (s *stand) measureStarts(ctx context.Context, results *results) error {
	for i := range s.settings.starts {
		for _, one := range []struct {
			population *population
			replica    **replica
			starts     *[]start
		}{{s.few, &s.knowsFew, &results.FewStarts}, {s.many, &s.knowsMany, &results.ManyStarts}} {
			r, err := s.startReplica(ctx, s.kubeconfig, one.population)
			if err != nil {
				return err
			}
			measured, err := r.started(ctx)
			if err != nil {
				return err
			}
			*one.starts = append(*one.starts, measured)
			*one.replica = r
			if i < s.settings.starts-1 {
				_ = r.end() // there is nothing to tell
			}
		}
	}
	return nil
}

func (r *replica) started(ctx context.Context) (start, error) {
	measured := start{ReadySeconds: r.untilReady.Seconds()}
	cpu, err := process.CPU(r.PID())
	if err != nil {
		return measured, err
	}
	measured.CPUSeconds = cpu.Seconds()
	if measured.HeapBytes, err = r.heap(ctx); err != nil {
		return measured, err
	}
	measured.Memory, err = process.ReadMemory(r.PID())
	return measured, err
}
