package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// state is what the metrics of the operator say. Passes are finished reconciliations.
type state struct{ readyKeys, readyMerchants, keyPasses, passes, failed, queued, leaders float64 }

// progress is the part of the work that is done, from 0 to 1.
type progress func(state) float64

// process is an operator that is measured.
type process struct {
	*fixture.Process

	bench   *bench
	started time.Time
}

func (b *bench) startOperator(ctx context.Context, args ...string) process {
	return process{bench: b, started: time.Now(), Process: b.StartRole(ctx, "operator", b.Kubeconfig, operatorSide.credentials(),
		append([]string{"--watch-namespaces", operatorSide.tenant(), "--pprof"}, args...)...)}
}

const noElection = "--leader-elect=false" // it is the only one

// measureOperator runs an operator until the work is done and nothing is queued.
func (b *bench) measureOperator(ctx context.Context, every time.Duration, done progress) measured {
	return b.measure(ctx, func(m *measured) {
		p := b.startOperator(ctx, noElection)
		defer p.Stop()
		p.finish(ctx, every, done)
		m.Took = time.Since(p.started)
		p.describe(ctx, m)
	})
}

// measureLeaderChange kills one of two operators when half of the ApiKeys are ready, and lets the other one finish.
func (b *bench) measureLeaderChange(ctx context.Context) measured {
	return b.measure(ctx, func(m *measured) {
		leader := b.startOperator(ctx)
		leader.wait(ctx, rarely, func(at state) float64 { return at.leaders }, 1)
		standby := b.startOperator(ctx)
		defer standby.Stop()
		leader.wait(ctx, rarely, b.ready, 0.5)
		leader.Kill()
		killed := time.Now()
		b.Progress("    killed the leader")
		standby.wait(ctx, often, func(at state) float64 { return at.keyPasses }, 1)
		m.Takeover = time.Since(killed)
		standby.finish(ctx, rarely, b.ready)
		m.Took = time.Since(leader.started)
		standby.describe(ctx, m)
	})
}

// How often the operator's metrics are read. A response costs it some milliseconds, which are measured too.
const (
	rarely = time.Second
	often  = 100 * time.Millisecond
)

// finish returns when the work is done. It reads the metrics often only for the last tenth.
func (p process) finish(ctx context.Context, every time.Duration, done progress) {
	p.wait(ctx, every, done, 0.9)
	p.wait(ctx, often, done, 1)
	p.bench.Progress("    done after %s", time.Since(p.started).Round(time.Millisecond))
}

// describe waits until the operator is idle, and adds what it has done and takes.
func (p process) describe(ctx context.Context, m *measured) {
	at := p.waitUntilIdle(ctx)
	m.Passes, m.KeyPasses, m.FailedPasses = int(at.passes), int(at.keyPasses), int(at.failed)
	m.CPU, m.Memory = p.CPU(), p.Memory()
	m.LiveHeap = p.LiveHeap(ctx)
	m.Collected = p.Memory()
}

func (p process) state(ctx context.Context) (state, error) {
	const resources, passes = "merchant_operator_resources", "controller_runtime_reconcile_total"
	m, err := p.Metrics(ctx)
	return state{
		readyKeys: m.Sum(resources, "state", "ready", "kind", "ApiKey"), readyMerchants: m.Sum(resources, "state", "ready", "kind", "Merchant"),
		keyPasses: m.Sum(passes, "controller", "apikey"), passes: m.Sum(passes), failed: m.Sum(passes, "result", "error"),
		queued: m.Sum("workqueue_depth"), leaders: m.Sum("leader_election_master_status"),
	}, err
}

// wait polls until this part is done, and prints the progress and the time that is left for all. ctx limits the time. An operator that does not respond for a minute has failed.
func (p process) wait(ctx context.Context, every time.Duration, done progress, part float64) state {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	printed, answered := time.Now(), time.Now()
	for {
		at, err := p.state(ctx)
		now := done(at)
		switch {
		case err == nil && now >= part:
			return at
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil || time.Since(answered) > time.Minute: // there are errors until it listens
			fixture.Check(fmt.Errorf("wait for the operator: %w", errors.Join(context.Cause(ctx), err)))
		}
		if time.Since(printed) >= 5*time.Second && now > 0 {
			printed = time.Now()
			took := time.Since(p.started)
			p.bench.Progress("    %4.0f s: %.0f of %d ApiKeys ready, %.0f passes, %.0f queued, %s left", took.Seconds(),
				at.readyKeys, p.bench.keys, at.passes, at.queued, time.Duration(float64(took)*(1/now-1)).Round(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// waitUntilIdle waits until three polls in a row find no new pass and an empty queue.
func (p process) waitUntilIdle(ctx context.Context) state {
	last, same := -1.0, 0
	return p.wait(ctx, rarely, func(at state) float64 {
		same++
		if at.passes != last || at.queued > 0 {
			last, same = at.passes, 0
		}
		return float64(same) / 3
	}, 1)
}
