package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// state is what the metrics of the operator say. Passes are those that have ended.
type state struct{ readyKeys, readyMerchants, keyPasses, passes, failed, queued float64 }

// How often the operator is asked for it: an answer costs it some milliseconds, which count.
const (
	rarely = time.Second
	often  = 100 * time.Millisecond
)

// operator is the product at work.
type operator struct {
	*fixture.Process

	bench   *bench
	started time.Time
}

// measureOperator starts an operator, waits until it has done what is wanted (and often only from nine tenths of it on) and has nothing
// to do any more, and stops it.
func (b *bench) measureOperator(ctx context.Context, every time.Duration, done func(at state, part float64) bool) (m measured) {
	served := b.served(ctx)
	// It is the only one, and so it does not wait for a lease.
	o := operator{bench: b, started: time.Now(), Process: b.StartProduct(ctx, "operator", b.Kubeconfig, operatorContestant.credentials(),
		"--watch-namespaces", operatorContestant.tenant(), "--leader-elect=false")}
	defer o.Stop()
	const most, all = 0.9, 1
	o.wait(ctx, every, func(at state) bool { return done(at, most) })
	o.wait(ctx, often, func(at state) bool { return done(at, all) })
	m.Took = time.Since(o.started)
	b.Progress("    done after %s", m.Took.Round(time.Millisecond))
	at := o.waitUntilIdle(ctx)
	m.Passes, m.KeyPasses, m.FailedPasses = int(at.passes), int(at.keyPasses), int(at.failed)
	m.CPU, m.Memory = o.CPU(), o.Memory()
	return m.with(b.served(ctx).since(served))
}

func (o operator) state(ctx context.Context) (state, error) {
	const resources, passes = "merchant_operator_resources", "controller_runtime_reconcile_total"
	m, err := o.Metrics(ctx)
	return state{
		readyKeys: m.Sum(resources, "state", "ready", "kind", "ApiKey"), readyMerchants: m.Sum(resources, "state", "ready", "kind", "Merchant"),
		keyPasses: m.Sum(passes, "controller", "apikey"), passes: m.Sum(passes), failed: m.Sum(passes, "result", "error"),
		queued: m.Sum("workqueue_depth"),
	}, err
}

// wait asks until the operator is done, and prints the progress. How long that may take is for ctx to say; an operator that does
// not even answer is not waited for.
func (o operator) wait(ctx context.Context, every time.Duration, done func(state) bool) state {
	const progressEvery, patience = 5 * time.Second, time.Minute
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	printed, answered := time.Now(), time.Now()
	for {
		at, err := o.state(ctx)
		switch {
		case err == nil && done(at):
			return at
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil || time.Since(answered) > patience: // before it listens, there is an error
			fixture.Check(fmt.Errorf("wait for the operator: %w", errors.Join(context.Cause(ctx), err)))
		}
		if time.Since(printed) >= progressEvery {
			printed = time.Now()
			o.bench.Progress("    %4.0f s: %.0f ApiKeys ready, %.0f passes, %.0f queued",
				time.Since(o.started).Seconds(), at.readyKeys, at.passes, at.queued)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// waitUntilIdle waits until the operator has had nothing to do for a while.
func (o operator) waitUntilIdle(ctx context.Context) state {
	const calm = 3
	last, same := -1.0, 0
	return o.wait(ctx, rarely, func(at state) bool {
		same++
		if at.passes != last || at.queued > 0 {
			last, same = at.passes, 0
		}
		return same >= calm
	})
}
