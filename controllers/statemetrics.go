package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// stateMetrics counts Merchants and ApiKeys by state from the cache, at each scrape. Every operator does, leader or
// not, so that the metrics exist without a leader.
type stateMetrics struct {
	reader     client.Reader
	registerer prometheus.Registerer
}

// The states of an object, from its conditions.
const (
	stateReady       = "ready"
	stateReconciling = "reconciling"
	stateStalled     = "stalled"
	stateInactive    = "inactive" // disabled, expired, or of a Merchant that is not Active
	stateUnknown     = "unknown"  // there are no conditions yet
)

// listTimeout bounds the wait for a cache that has not synced.
const listTimeout = 5 * time.Second

var resourcesDesc = prometheus.NewDesc("merchant_operator_resources",
	"Merchants and ApiKeys by state: ready, reconciling, stalled, inactive or unknown.", []string{"kind", "state"}, nil)

// NeedLeaderElection starts it without leadership.
func (*stateMetrics) NeedLeaderElection() bool { return false }

// Start registers the metrics until ctx ends. The registry belongs to the process, in which tests run several
// operators.
func (m *stateMetrics) Start(ctx context.Context) error {
	err := m.registerer.Register(m)
	if taken := (prometheus.AlreadyRegisteredError{}); errors.As(err, &taken) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("register the state metrics: %w", err)
	}
	<-ctx.Done()
	m.registerer.Unregister(m)
	return nil
}

// Describe implements prometheus.Collector.
func (*stateMetrics) Describe(descs chan<- *prometheus.Desc) { descs <- resourcesDesc }

// Collect implements prometheus.Collector. A kind that cannot be listed is left out, because an error would fail the
// whole scrape.
func (m *stateMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var merchants v1alpha1.MerchantList
	if err := m.reader.List(ctx, &merchants, client.UnsafeDisableDeepCopy); err == nil {
		counts := newStateCounts()
		for i := range merchants.Items {
			counts[stateOf(merchants.Items[i].Status.Conditions)]++
		}
		counts.send("Merchant", out)
	}
	var keys v1alpha1.ApiKeyList
	if err := m.reader.List(ctx, &keys, client.UnsafeDisableDeepCopy); err == nil {
		counts := newStateCounts()
		for i := range keys.Items {
			counts[stateOf(keys.Items[i].Status.Conditions)]++
		}
		counts.send("ApiKey", out)
	}
}

func stateOf(all []metav1.Condition) string {
	switch {
	case conditions.Inactive(all):
		return stateInactive
	case meta.IsStatusConditionTrue(all, v1alpha1.StalledCondition):
		return stateStalled
	case meta.IsStatusConditionTrue(all, v1alpha1.ReadyCondition):
		return stateReady
	case len(all) > 0:
		return stateReconciling
	}
	return stateUnknown
}

// stateCounts has every state, so that a state with 0 objects has a series.
type stateCounts map[string]int

func newStateCounts() stateCounts {
	return stateCounts{stateReady: 0, stateReconciling: 0, stateStalled: 0, stateInactive: 0, stateUnknown: 0}
}

func (c stateCounts) send(kind string, out chan<- prometheus.Metric) {
	for state, n := range c {
		out <- prometheus.MustNewConstMetric(resourcesDesc, prometheus.GaugeValue, float64(n), kind, state)
	}
}
