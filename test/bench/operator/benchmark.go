package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// limit is for all of it, on a machine that does other things too. A quiet one takes a few minutes.
const limit = 40 * time.Minute

var errTooSlow = errors.New("the machine is too slow for so many; see -keys")

// benchmark measures the operator between the two halves of the floor, so that a machine or a database that becomes slower does
// so to both. Then it restarts the operator, which has nothing to write any more.
func benchmark(ctx context.Context, settings settings, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()
	fmt.Fprintln(out, "==> starting Kubernetes")
	s, err := newStand(ctx, settings, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	s.say("creating %d Merchants and %d ApiKeys for the operator, and as many for the floor", settings.merchants, settings.keys)
	if _, err := s.create(ctx, operatorContestant); err != nil {
		return err
	}
	floors, err := s.create(ctx, floorContestant)
	if err != nil {
		return err
	}
	results := &results{Merchants: settings.merchants, Keys: settings.keys, Ratios: report.Ratios{}}
	floor := s.newFloor(ctx, floors)
	half := settings.keys / 2
	s.say("the floor, first half")
	if err := floor.measure(ctx, results, 0, half); err != nil {
		return err
	}
	s.say("the operator")
	if results.Operator, err = s.measureOperator(ctx, rarely, func(at standing, part float64) bool {
		return float64(at.readyKeys) >= part*float64(settings.keys) && float64(at.readyMerchants) >= part*float64(settings.merchants)
	}); err != nil {
		return err
	}
	s.say("the floor, second half")
	if err := floor.measure(ctx, results, half, settings.keys); err != nil {
		return err
	}
	s.say("the operator once more, with nothing to do")
	if results.Restart, err = s.measureOperator(ctx, often, func(at standing, part float64) bool {
		return float64(at.keyPasses) >= part*float64(settings.keys) && (part < 1 || at.queued == 0)
	}); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	results.Machine = report.DescribeMachine()
	results.print(out)
	return report.Save(settings.output, results)
}

// measure runs a part of the floor and adds what came of it.
func (f *floor) measure(ctx context.Context, results *results, from, to int) error {
	before, err := f.load(ctx)
	if err != nil {
		return err
	}
	cpu, err := process.CPU(os.Getpid())
	if err != nil {
		return err
	}
	took, err := f.run(ctx, from, to)
	if err != nil {
		return err
	}
	spent, err := process.CPU(os.Getpid())
	if err != nil {
		return err
	}
	after, err := f.load(ctx)
	if err != nil {
		return err
	}
	f.say("    %d ApiKeys in %s", to-from, took.Round(time.Millisecond))
	results.Floor = append(results.Floor, measured{Took: took, CPU: spent - cpu}.with(after.since(before)))
	return nil
}

// measureOperator starts an operator, waits until it has done what is wanted, of which it can tell a part too, and has nothing to do
// any more, and stops it. At first it asks the operator no more often than every so long.
func (s *stand) measureOperator(ctx context.Context, every time.Duration, wanted func(at standing, part float64) bool) (measured, error) {
	before, err := s.load(ctx)
	if err != nil {
		return measured{}, err
	}
	o, err := s.startOperator(ctx)
	if err != nil {
		return measured{}, err
	}
	defer o.Stop()
	const most, all = 0.9, 1
	if _, err := o.wait(ctx, every, func(at standing) bool { return wanted(at, most) }); err != nil {
		return measured{}, err
	}
	if _, err := o.wait(ctx, often, func(at standing) bool { return wanted(at, all) }); err != nil {
		return measured{}, err
	}
	m := measured{Took: time.Since(o.started)}
	s.say("    there after %s", m.Took.Round(time.Millisecond))
	at, err := o.rest(ctx)
	if err != nil {
		return m, err
	}
	m.Passes, m.KeyPasses, m.FailedPasses = at.passes, at.keyPasses, at.failed
	if m.CPU, err = process.CPU(o.PID()); err != nil {
		return m, err
	}
	if m.Memory, err = process.ReadMemory(o.PID()); err != nil {
		return m, err
	}
	after, err := s.load(ctx)
	return m.with(after.since(before)), err
}
