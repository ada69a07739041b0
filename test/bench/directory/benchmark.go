package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// benchmark measures everything, and says what came of it.
func benchmark(ctx context.Context, settings settings, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	fmt.Fprintln(out, "==> starting Kubernetes and Redis")
	s, err := newStand(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	began := time.Now()
	fmt.Fprintf(out, "==> publishing %d keys of %d merchants\n", settings.keys, settings.merchants)
	if err := s.publishAll(ctx, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "    in %s\n", time.Since(began).Round(time.Second))
	all := &results{Keys: settings.keys, Few: settings.few, Merchants: settings.merchants, Ratios: report.Ratios{}}
	for _, step := range []struct {
		what string
		do   func(context.Context, *results) error
	}{
		{"what a reflector's store would keep", s.measureFloors},
		{"the start, and the memory after it", s.measureStarts},
		{"requests, beside a replica that knows 100 keys", s.measureLookups},
		{fmt.Sprintf("requests while %d keys change", settings.changes), s.measureBursts},
	} {
		fmt.Fprintf(out, "==> measuring %s\n", step.what)
		if err := step.do(ctx, all); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	all.Machine = report.DescribeMachine()
	all.print(out)
	return report.Save(settings.output, all)
}
