package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// stateMetrics counts Merchants and ApiKeys by state, as the caches change: counting at each scrape would copy all objects. Every
// operator does, leader or not, so that the metrics exist without a leader.
type stateMetrics struct {
	cache      cache.Informers
	registerer prometheus.Registerer
	counts     map[string]*stateCounts // by kind
}

func newStateMetrics(informers cache.Informers, registerer prometheus.Registerer) *stateMetrics {
	return &stateMetrics{informers, registerer, map[string]*stateCounts{
		"Merchant": {of: &v1alpha1.Merchant{}}, "ApiKey": {of: &v1alpha1.ApiKey{}},
	}}
}

// The states of an object, from its conditions.
const (
	stateReady       = "ready"
	stateReconciling = "reconciling"
	stateStalled     = "stalled"
	stateInactive    = "inactive" // Ready, and the key is refused or not issued
	stateUnknown     = "unknown"  // there are no conditions yet
)

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
	defer m.registerer.Unregister(m)
	for kind, counts := range m.counts {
		informer, err := m.cache.GetInformer(ctx, counts.of)
		if err == nil {
			err = counts.follow(informer)
		}
		if err != nil {
			return fmt.Errorf("count objects of kind %s: %w", kind, err)
		}
	}
	<-ctx.Done()
	return nil
}

// Describe implements prometheus.Collector.
func (*stateMetrics) Describe(descs chan<- *prometheus.Desc) { descs <- resourcesDesc }

// Collect implements prometheus.Collector. A kind that was not listed yet is left out.
func (m *stateMetrics) Collect(out chan<- prometheus.Metric) {
	for kind, counts := range m.counts {
		for state, n := range counts.get() {
			out <- prometheus.MustNewConstMetric(resourcesDesc, prometheus.GaugeValue, float64(n), kind, state)
		}
	}
}

// stateCounts counts the objects of one kind by state.
type stateCounts struct {
	of client.Object

	mu     sync.Mutex
	counts map[string]int
	synced func() bool
}

// follow counts all objects of the informer, and their changes.
func (c *stateCounts) follow(informer cache.Informer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Every state, so that a state with 0 objects has a series.
	c.counts = map[string]int{stateReady: 0, stateReconciling: 0, stateStalled: 0, stateInactive: 0, stateUnknown: 0}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.add(object, 1) },
		UpdateFunc: func(before, after any) { c.add(before, -1); c.add(after, 1) },
		DeleteFunc: func(object any) { c.add(object, -1) },
	})
	if err == nil {
		c.synced = registration.HasSynced
	}
	return err
}

func (c *stateCounts) add(object any, n int) {
	if last, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
		object = last.Obj
	}
	var all []metav1.Condition
	switch object := object.(type) {
	case *v1alpha1.Merchant:
		all = object.Status.Conditions
	case *v1alpha1.ApiKey:
		all = object.Status.Conditions
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[newState(all)] += n
}

// get returns the number of objects in each state; nil: they were not listed yet.
func (c *stateCounts) get() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.synced == nil || !c.synced() {
		return nil
	}
	return maps.Clone(c.counts)
}

func newState(all []metav1.Condition) string {
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
