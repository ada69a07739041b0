package attempt

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// Metrics of events and attempts. No label contains a merchant or a value that one chose.
type Metrics struct {
	attempts          *prometheus.CounterVec
	attemptDuration   prometheus.Histogram
	events            *prometheus.CounterVec
	firstLag          prometheus.Histogram
	deferred          *prometheus.CounterVec
	newDeadLetters    *prometheus.CounterVec
	endpointsDisabled *prometheus.CounterVec
	testEvents        *prometheus.CounterVec
	leasesLost        prometheus.Counter
}

// Why an event is deferred. They label a metric.
const (
	DeferredBusy        = "busy"
	DeferredBreaker     = "breaker"
	DeferredStopping    = "stopping"
	deferredChanged     = "endpoint_changed" // while an attempt failed, or another dispatcher knows a newer target
	deferredUnsigned    = "no_secret"
	deferredUnknown     = "unknown_merchant"
	deferredUndecodable = "merchant_decode_error"
	deferredRemoved     = "webhook_removed"
	deferredUnreadable  = "endpoint_decode_error"
	// deferredUnsupported: a newer version wrote the event, and a newer dispatcher will deliver it.
	deferredUnsupported = "unsupported_event"
	// deferredFrozen: it would be dropped or become a dead letter, or be sent to another target than the disabled one; but the watch is frozen,
	// and the merchant may want it by now, or have another target.
	deferredFrozen = "frozen_watch"
)

// Why an event is a dead letter without an attempt: its endpoint is disabled, or the event has no body.
const (
	ReasonDisabled    = "endpoint_disabled"
	reasonEncodeError = "encode_error"
)

// The outcomes of events. They label a metric.
const (
	outcomeDelivered = "delivered"
	outcomeDropped   = "dropped"
	OutcomeRemoved   = "webhook_removed"
	outcomeDead      = "dead"
	outcomeExpired   = "expired"
)

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	const namespace, subsystem = "merchant_operator", "webhook"
	factory := promauto.With(registerer)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		attempts:        counters("attempts_total", "Delivery attempts, by result.", "result"),
		attemptDuration: histogram("attempt_duration_seconds", "Duration of delivery attempts.", .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15),
		events:          counters("events_total", "Finished events, by kind and outcome: delivered, dropped (not subscribed), webhook_removed (dropped 24 hours after that), dead (dead letter), expired (lost after 30 days).", "kind", "outcome"),
		firstLag: histogram("first_attempt_lag_seconds", "Time from an event to its first delivery attempt.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
		deferred:          counters("deferrals_total", "Due events that were deferred without an attempt, by reason.", "reason"),
		newDeadLetters:    counters("dead_letters_total", "Events that became dead letters, by reason.", "reason"),
		endpointsDisabled: counters("endpoints_disabled_total", "Endpoints that were disabled, by cause.", "cause"),
		testEvents:        counters("test_events_total", "Finished events of test mode, which no other counter has, by outcome: delivered, dropped (not subscribed), webhook_removed (dropped 24 hours after that), dead (given up).", "outcome"),
		leasesLost:        factory.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "leases_lost_total", Help: "Events whose lease ended, so that another dispatcher took them, before this one had finished."}),
	}
	m.initialize()
	return m
}

// initialize makes counters start at 0; otherwise rate() would miss the first increment of each label.
func (m *Metrics) initialize() {
	for _, reason := range delivery.Reasons() {
		m.attempts.WithLabelValues(reason)
	}
	for _, reason := range slices.Concat(failureReasons(), []string{ReasonDisabled, reasonEncodeError, outbox.ReasonDecodeError, outbox.ReasonTooMany}) {
		m.newDeadLetters.WithLabelValues(reason)
	}
	for _, reason := range []string{DeferredBusy, DeferredBreaker, DeferredStopping} {
		m.deferred.WithLabelValues(reason)
	}
	for reason := range deferralCauses {
		m.deferred.WithLabelValues(reason)
	}
	for _, cause := range []string{outbox.EndpointGone, outbox.EndpointFailing} {
		m.endpointsDisabled.WithLabelValues(cause)
	}
	for _, outcome := range []string{outcomeDelivered, outcomeDropped, OutcomeRemoved, outcomeDead} {
		m.testEvents.WithLabelValues(outcome)
	}
	m.Expired(0)
	m.EndedExcess(0, false)
	for _, kind := range feed.Kinds() {
		for _, outcome := range []string{outcomeDelivered, outcomeDropped, OutcomeRemoved, outcomeDead} {
			m.events.WithLabelValues(string(kind), outcome)
		}
	}
}

// failureReasons are the reasons of failed attempts that may be an event's last.
func failureReasons() []string {
	return slices.DeleteFunc(delivery.Reasons(), func(reason string) bool {
		return reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted
	})
}

func (m *Metrics) attempted(event feed.Event, result string, duration time.Duration) {
	if event.TestMode {
		return
	}
	m.attempts.WithLabelValues(result).Inc()
	m.attemptDuration.Observe(duration.Seconds())
}

// finished counts an event that was delivered, dropped or given up.
func (m *Metrics) finished(event feed.Event, outcome string) {
	if event.TestMode {
		m.testEvents.WithLabelValues(outcome).Inc()
		return
	}
	m.events.WithLabelValues(string(event.Kind), outcome).Inc()
}

// Deferred counts an event that was deferred without an attempt.
func (m *Metrics) Deferred(event feed.Event, reason string) {
	if !event.TestMode {
		m.deferred.WithLabelValues(reason).Inc()
	}
}

// Expired counts events without a kind, which was in their expired record.
func (m *Metrics) Expired(n int) {
	m.events.WithLabelValues("", outcomeExpired).Add(float64(n))
}

// EndedExcess counts events that ended because their account had too many. Their kinds were not read.
func (m *Metrics) EndedExcess(n int, testMode bool) {
	if testMode {
		m.testEvents.WithLabelValues(outcomeDead).Add(float64(n))
		return
	}
	m.newDeadLetters.WithLabelValues(outbox.ReasonTooMany).Add(float64(n))
	m.events.WithLabelValues("", outcomeDead).Add(float64(n))
}

// DeadLettered counts an event that became a dead letter.
func (m *Metrics) DeadLettered(event feed.Event, reason string) {
	m.newDeadLetters.WithLabelValues(reason).Inc()
	m.finished(event, outcomeDead)
}
