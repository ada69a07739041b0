package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// results are all measurements of a run.
type results struct {
	Machine   report.Machine      `json:"machine"`
	Merchants int                 `json:"merchants"`
	Checked   verdict             `json:"checked"`
	Trips     float64             `json:"redisCommandsPerRequest"`
	Shares    []shares            `json:"shares"`
	Samples   map[string][]sample `json:"samples"` // by kind and side, in the order of the rounds
	Memory    memory              `json:"memory"`
	Roomy     memory              `json:"memoryWithRoomyHashes"`
	Moved     moves               `json:"moved"`
	Ratios    report.Ratios       `json:"ratios"`
}

// shares are those of each primary.
type shares struct {
	Buckets   []int   `json:"buckets"`
	Merchants []int   `json:"merchants"`
	Scripts   []int64 `json:"scripts"`
}

func sampleKey(kind string, of *side) string { return kind + "@" + of.name }

// benchmark puts the same load on both sides in turn, and says what came of it.
func benchmark(ctx context.Context, settings settings, out io.Writer) (err error) {
	fmt.Fprintf(out, "==> starting Kubernetes with %d merchants, a Redis, a Redis Cluster of %d, and two replicas of the API\n", settings.merchants, primaries)
	s, err := newStand(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &results{Merchants: settings.merchants, Samples: map[string][]sample{}, Ratios: report.Ratios{}}

	empty, err := s.single.nodes[0].fact(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "==> every merchant charges, repeats, reads and cancels; every answer is looked at")
	first := map[*side]verdict{}
	for _, side := range s.sides() {
		first[side] = side.caller.check(ctx, s.merchants, "first")
		r.Checked.add(first[side])
	}
	if r.Checked.Wrong+r.Checked.Unavailable > 0 {
		return fmt.Errorf("of the first %d answers %d were wrong and %d were 503: %q", r.Checked.Asked, r.Checked.Wrong, r.Checked.Unavailable, r.Checked.Examples)
	}
	if err := r.countTrips(ctx, s); err != nil {
		return err
	}
	before, err := s.shares(ctx)
	if err != nil {
		return err
	}
	for round := range settings.rounds {
		fmt.Fprintf(out, "==> round %d of %d\n", round+1, settings.rounds)
		if err := s.round(ctx, round, first, r, settings); err != nil {
			return err
		}
	}
	r.addShares(before)
	r.Checked.add(s.cluster.caller.check(ctx, s.merchants, "last"))
	if r.Memory, err = s.single.nodes[0].weighAll(ctx, empty); err != nil {
		return err
	}
	fmt.Fprintln(out, "==> moving buckets until no primary has two more than another, while all charge")
	if r.Moved, err = s.cluster.even(ctx, s.merchants); err != nil {
		return err
	}
	if r.Roomy, err = s.single.weighRoomy(ctx, s.merchants); err != nil {
		return err
	}
	return s.finish(ctx, first, r, settings, out)
}

// finish measures the spread once more, and tells.
func (s *stand) finish(ctx context.Context, first map[*side]verdict, r *results, settings settings, out io.Writer) error {
	after, err := s.shares(ctx)
	if err != nil {
		return err
	}
	evened, err := s.cluster.measure(ctx, s.cluster.target(read, settings.rounds, first[s.cluster]), settings)
	if err != nil {
		return err
	}
	after.Scripts = evened.Scripts
	r.Shares = append(r.Shares, after)
	r.Machine = report.DescribeMachine()
	r.print(s, out)
	if err := report.Save(settings.output, r); err != nil {
		return err
	}
	if wrong := r.Checked.Wrong + r.Moved.During.Wrong + r.Moved.After.Wrong; wrong > 0 {
		return fmt.Errorf("%d answers were wrong", wrong)
	}
	return nil
}

// round measures each kind on one side and then on the other, so that what else the machine does at that moment is with both.
func (s *stand) round(ctx context.Context, round int, first map[*side]verdict, r *results, settings settings) error {
	for _, kind := range kinds {
		for _, side := range s.sides() {
			measured, err := side.measure(ctx, side.target(kind, round, first[side]), settings)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			key := sampleKey(kind, side)
			r.Samples[key] = append(r.Samples[key], measured)
		}
	}
	return nil
}

// countTrips counts what the cluster is sent while some merchants ask everything.
func (r *results) countTrips(ctx context.Context, s *stand) error {
	some := s.merchants[:min(100, len(s.merchants))]
	asked := verdict{}
	sent, err := s.cluster.trips(ctx, func() { asked = s.cluster.caller.check(ctx, some, "counted") })
	r.Checked.add(asked)
	r.Trips = float64(sent) / float64(max(asked.Asked, 1))
	return err
}

// shares says which primary has how many buckets and merchants.
func (s *stand) shares(ctx context.Context) (shares, error) {
	held, err := s.cluster.held(ctx)
	if err != nil {
		return shares{}, err
	}
	all := shares{Buckets: make([]int, len(held)), Merchants: make([]int, len(held))}
	for i, h := range held {
		all.Buckets[i] = len(h.buckets)
		mine := map[int]bool{}
		for _, slot := range h.buckets {
			mine[slot] = true
		}
		for _, m := range s.merchants {
			if mine[slotOf(tag(m.bucket))] {
				all.Merchants[i]++
			}
		}
	}
	return all, nil
}

// addShares adds up the scripts of all rounds.
func (r *results) addShares(of shares) {
	of.Scripts = make([]int64, primaries)
	for _, kind := range kinds {
		for _, measured := range r.Samples[kind+"@cluster"] {
			for i, scripts := range measured.Scripts {
				of.Scripts[i] += scripts
			}
		}
	}
	r.Shares = append(r.Shares, of)
}
