package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/freeport"
)

// operator is the product at work.
type operator struct {
	*stand
	*process.Process

	address string // of the ops port
	started time.Time
}

// startOperator starts the operator. It is the only one, and so it does not wait for a lease.
func (s *stand) startOperator(ctx context.Context) (*operator, error) {
	port, err := freeport.Choose()
	if err != nil {
		return nil, err
	}
	o := &operator{stand: s, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), started: time.Now()}
	o.Process, _, err = process.Start(ctx, s.log, nil, s.settings.binary, "operator",
		"--kubeconfig", s.kubeconfig, "--credentials-namespace", operatorContestant.credentials(),
		"--watch-namespaces", operatorContestant.tenant(), "--ops-address", o.address, "--leader-elect=false")
	return o, err
}

// standing is what the operator tells of itself.
type standing struct {
	readyKeys, readyMerchants int
	keyPasses, passes         int // that have ended
	queued                    int
	failed                    int // passes that ended with an error
}

const (
	readyMetric  = "merchant_operator_resources"
	passesMetric = "controller_runtime_reconcile_total"
	queuedMetric = "workqueue_depth"
)

func (o *operator) standing(ctx context.Context) (at standing, err error) {
	text, err := get(ctx, "http://"+o.address+"/metrics")
	if err != nil {
		return at, err
	}
	found, err := parseMetrics(text, readyMetric, passesMetric, queuedMetric)
	for _, one := range found {
		count := int(one.value)
		switch {
		case one.name == readyMetric && one.labels["state"] == "ready" && one.labels["kind"] == "ApiKey":
			at.readyKeys += count
		case one.name == readyMetric && one.labels["state"] == "ready":
			at.readyMerchants += count
		case one.name == queuedMetric:
			at.queued += count
		case one.name == passesMetric:
			at.passes += count
			if one.labels["controller"] == "apikey" {
				at.keyPasses += count
			}
			if one.labels["result"] == "error" {
				at.failed += count
			}
		}
	}
	return at, err
}

// How often the operator is asked where it stands: an answer costs it some milliseconds, which count.
const (
	rarely        = time.Second
	often         = 100 * time.Millisecond
	progressEvery = 5 * time.Second
)

// wait asks until the operator stands as is wanted, and tells of the progress. How long that may take is for ctx to say; an operator
// that does not even answer is not waited for.
func (o *operator) wait(ctx context.Context, every time.Duration, wanted func(standing) bool) (standing, error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	told, answered := time.Now(), time.Now()
	for {
		at, err := o.standing(ctx)
		switch {
		case err == nil && wanted(at):
			return at, nil
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil || time.Since(answered) > process.Patience: // before it listens, there is an error
			return at, fmt.Errorf("wait for the operator (its log is %s): %w", o.log.Name(), errors.Join(context.Cause(ctx), err))
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			o.say("    %4.0f s: %d ApiKeys ready, %d passes, %d queued", time.Since(o.started).Seconds(), at.readyKeys, at.passes, at.queued)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// rest waits until the operator has had nothing to do for a while.
func (o *operator) rest(ctx context.Context) (standing, error) {
	const calm = 3
	last, same := -1, 0
	return o.wait(ctx, rarely, func(at standing) bool {
		same++
		if at.passes != last || at.queued > 0 {
			last, same = at.passes, 0
		}
		return same >= calm
	})
}
