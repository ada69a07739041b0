package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// clockInterval is the time between two comparisons of the clocks of an operator that has nothing else to do.
const clockInterval = time.Minute

// clockGuard compares the operator's clock with that of the API server. While they differ by more than max, nobody knows what time it is:
// nothing is rotated, ended or deleted because of the time, and what is written has the time of the API server.
type clockGuard struct {
	clock.PassiveClock

	server     *kube.ServerClock
	max        time.Duration
	apiReader  client.Reader
	namespace  string // of published objects
	registerer prometheus.Registerer
}

// Wrong reports whether the clocks differed too much at the last answer of the API server.
func (g *clockGuard) Wrong() bool { return g.server.Ahead().Abs() > g.max }

// Now returns the time of the API server while the clocks differ too much.
func (g *clockGuard) Now() time.Time {
	now := g.PassiveClock.Now()
	if g.Wrong() {
		return now.Add(-g.server.Ahead())
	}
	return now
}

// Since returns the time since t.
func (g *clockGuard) Since(t time.Time) time.Duration { return g.Now().Sub(t) }

// NeedLeaderElection starts it without leadership.
func (*clockGuard) NeedLeaderElection() bool { return false }

// Start compares the clocks until ctx ends, and reports a difference.
func (g *clockGuard) Start(ctx context.Context) error {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_clock_difference_seconds",
		Help: "By how much the operator's clock is ahead of that of the Kubernetes API server, at least. Negative: it is behind.",
	}, func() float64 { return g.server.Ahead().Seconds() })
	switch err := g.registerer.Register(gauge); {
	case err == nil:
		defer g.registerer.Unregister(gauge)
	case !errors.As(err, &prometheus.AlreadyRegisteredError{}): // of another operator in the process of a test
		return fmt.Errorf("register the difference of the clocks: %w", err)
	}
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	for {
		g.compare(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// compare asks the API server for anything; its transport compares the clocks.
func (g *clockGuard) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockInterval)
	defer cancel()
	_ = g.apiReader.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: published.LastUseName(0)}, new(corev1.ConfigMap)) // whatever it answers
	if g.Wrong() {
		logf.FromContext(ctx).Error(errClock, "stopped all work that depends on the time", "ahead", g.server.Ahead().String())
	}
}

var errClock = errors.New("the clocks of the operator and of the Kubernetes API server differ by more than a minute")
