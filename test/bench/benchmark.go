package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// benchmark measures everything in turn, several times over, and says what came of it.
func benchmark(ctx context.Context, settings settings, out io.Writer) (err error) {
	fmt.Fprintln(out, "==> starting Kubernetes, Redis, the product, the floors and the naive service")
	s, err := newStand(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	all, err := s.contestants()
	if err != nil {
		return err
	}
	if settings.only != "" {
		wanted := strings.Split(settings.only, ",")
		all = slices.DeleteFunc(all, func(c *contestant) bool { return !slices.Contains(wanted, c.name) })
	}
	if err := s.countTrips(ctx, all); err != nil {
		return err
	}
	results := newResults(all)
	for round := range settings.rounds {
		fmt.Fprintf(out, "==> round %d of %d\n", round+1, settings.rounds)
		if err := s.round(ctx, all, results, settings); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "==> at half of the maximum")
	if err := s.halfLoad(ctx, all, results, settings); err != nil {
		return err
	}
	results.Machine = report.DescribeMachine()
	results.print(out)
	return report.Save(settings.output, results)
}

// round measures each contestant once. Those that are compared follow each other, so that what else the machine does at that
// moment is with both.
func (s *stand) round(ctx context.Context, all []*contestant, results *results, settings settings) error {
	for _, connections := range connections {
		for _, c := range all {
			measured, err := s.measure(ctx, c, connections, settings)
			if err != nil {
				return err
			}
			results.add(c.name, connections, measured)
		}
	}
	for _, pipeline := range rawPipelines {
		const perSecond = 60_000 // about; it is counted in calls, not in seconds
		raw, err := s.measureRaw(ctx, pipeline, int(perSecond*settings.length.Seconds()))
		if err != nil {
			return err
		}
		results.addRaw(pipeline, raw)
	}
	return nil
}
