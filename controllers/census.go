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
)

// census counts Merchants and ApiKeys by how they stand, at the time of asking and out of the cache. It is done by
// every operator, leader or not, so that what stands still is seen while nobody leads.
type census struct {
	reader     client.Reader
	registerer prometheus.Registerer
}

// How an object stands, as its conditions say.
const (
	standsReady       = "ready"
	standsReconciling = "reconciling"
	standsStalled     = "stalled"
	standsUnknown     = "unknown" // nobody has looked at it yet
)

// censusTimeout bounds the wait for a cache that has not synced.
const censusTimeout = 5 * time.Second

var censusDesc = prometheus.NewDesc("merchant_operator_resources",
	"Merchants and ApiKeys, by how they stand: ready, reconciling, stalled or unknown.", []string{"kind", "state"}, nil)

// NeedLeaderElection lets the manager start it at once.
func (*census) NeedLeaderElection() bool { return false }

// Start counts until ctx ends. The registry is the process's, in which tests run several operators.
func (c *census) Start(ctx context.Context) error {
	err := c.registerer.Register(c)
	if taken := (prometheus.AlreadyRegisteredError{}); errors.As(err, &taken) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("register the census: %w", err)
	}
	<-ctx.Done()
	c.registerer.Unregister(c)
	return nil
}

// Describe is asked by the registry.
func (*census) Describe(descs chan<- *prometheus.Desc) { descs <- censusDesc }

// Collect counts. What cannot be read now is left out, for an error would cost the whole scrape.
func (c *census) Collect(counted chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	var merchants v1alpha1.MerchantList
	if err := c.reader.List(ctx, &merchants, client.UnsafeDisableDeepCopy); err == nil {
		tally := newTally()
		for i := range merchants.Items {
			tally[standing(merchants.Items[i].Status.Conditions)]++
		}
		tally.tell("Merchant", counted)
	}
	var keys v1alpha1.ApiKeyList
	if err := c.reader.List(ctx, &keys, client.UnsafeDisableDeepCopy); err == nil {
		tally := newTally()
		for i := range keys.Items {
			tally[standing(keys.Items[i].Status.Conditions)]++
		}
		tally.tell("ApiKey", counted)
	}
}

func standing(conditions []metav1.Condition) string {
	switch {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.StalledCondition):
		return standsStalled
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ReadyCondition):
		return standsReady
	case len(conditions) > 0:
		return standsReconciling
	}
	return standsUnknown
}

// tally has every state, so that none vanishes from a graph when it is 0.
type tally map[string]int

func newTally() tally {
	return tally{standsReady: 0, standsReconciling: 0, standsStalled: 0, standsUnknown: 0}
}

func (t tally) tell(kind string, counted chan<- prometheus.Metric) {
	for state, n := range t {
		counted <- prometheus.MustNewConstMetric(censusDesc, prometheus.GaugeValue, float64(n), kind, state)
	}
}
