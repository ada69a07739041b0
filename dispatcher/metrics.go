package dispatcher

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// metrics of a dispatcher. Their labels never hold what a merchant chose, nor who it is. The gauges of what is in
// Redis say the same on every dispatcher, so they want max and not sum.
type metrics struct {
	attempts         *prometheus.CounterVec
	attemptDuration  prometheus.Histogram
	events           *prometheus.CounterVec
	firstLag         prometheus.Histogram
	deferred         *prometheus.CounterVec
	buriedTotal      *prometheus.CounterVec
	disabledTotal    *prometheus.CounterVec
	leasesLost       prometheus.Counter
	expired          prometheus.Counter
	expiryLag        prometheus.Histogram
	due, dead        prometheus.Gauge
	disabled         prometheus.Gauge
	overdueEvent     prometheus.Gauge
	overdueSession   prometheus.Gauge
	registerInFlight func(func() int)
}

// What became of an event.
const (
	outcomeDelivered = "delivered"
	outcomeDropped   = "dropped"
	outcomeDead      = "dead"
	outcomeExpired   = "expired"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	const space, about = "merchant_operator", "webhook"
	factory := promauto.With(registerer)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: about, Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: space, Subsystem: about, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Namespace: space, Subsystem: about, Name: name, Help: help})
	}
	histogram := func(subsystem, name, help string, buckets ...float64) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Namespace: space, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		attempts:        counters("attempts_total", "Attempts to deliver an event, by what came of them.", "result"),
		attemptDuration: histogram(about, "attempt_duration_seconds", "Time an attempt took.", .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15),
		events:          counters("events_total", "Events that came to an end, by kind and outcome: delivered, dropped because nobody wanted them, dead, or expired: lost after 30 days.", "kind", "outcome"),
		firstLag: histogram(about, "first_attempt_lag_seconds", "Time from what happened to the first attempt to tell of it.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
		deferred:      counters("deferrals_total", "Events that were due and put off without an attempt, by why.", "reason"),
		buriedTotal:   counters("dead_letters_total", "Events that were given up, by why.", "reason"),
		disabledTotal: counters("endpoints_disabled_total", "Endpoints that were disabled, by why.", "cause"),
		leasesLost:    counter("leases_lost_total", "Events that another dispatcher took over before this one was done."),
		due:           gauge("due_events", "Events in Redis that wait for delivery, now or later."),
		dead:          gauge("dead_letters", "Events in Redis that were given up."),
		disabled:      gauge("endpoints_disabled", "Endpoints to which no events are sent."),
		overdueEvent:  gauge("overdue_seconds", "For how long the event that has waited longest is due, without a dispatcher to take it; 0: none."),
		overdueSession: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: space, Subsystem: "session", Name: "overdue_seconds",
			Help: "For how long the session that has waited longest is past its expiry and not expired yet; 0: none.",
		}),
		registerInFlight: func(underWay func() int) {
			factory.NewGaugeFunc(prometheus.GaugeOpts{
				Namespace: space, Subsystem: about, Name: "attempts_in_flight", Help: "Attempts under way.",
			}, func() float64 { return float64(underWay()) })
		},
		expired: factory.NewCounter(prometheus.CounterOpts{
			Namespace: space, Name: "sessions_expired_total", Help: "Sessions this dispatcher found expired; those that a read found are not counted.",
		}),
		expiryLag: histogram("session", "expiry_lag_seconds", "Time from the expiry of a session to the dispatcher's sweep, the longest of each sweep that found any.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600),
	}
	m.begin()
	return m
}

// begin makes the counters start at 0: the first of its kind would else not be seen as a rise.
func (m *metrics) begin() {
	for _, reason := range delivery.Reasons() {
		m.attempts.WithLabelValues(reason)
	}
	for _, reason := range slices.Concat(failures(), []string{reasonDisabled, reasonUnspeakable, store.ReasonUnreadable}) {
		m.buriedTotal.WithLabelValues(reason)
	}
	for _, reason := range []string{deferredBusy, deferredBroken, deferredStopping, deferredUnsigned, deferredUnknown, deferredUndecodable, deferredUnsupported} {
		m.deferred.WithLabelValues(reason)
	}
	for _, cause := range []string{store.EndpointGone, store.EndpointFailing} {
		m.disabledTotal.WithLabelValues(cause)
	}
	m.expiredEvents(0)
	for _, kind := range kinds() {
		for _, outcome := range []string{outcomeDelivered, outcomeDropped, outcomeDead} {
			m.events.WithLabelValues(string(kind), outcome)
		}
	}
}

// failures are the reasons why an attempt may be the last.
func failures() []string {
	return slices.DeleteFunc(delivery.Reasons(), func(reason string) bool {
		return reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted
	})
}

func kinds() []v1alpha1.WebhookEvent {
	return []v1alpha1.WebhookEvent{
		v1alpha1.EventSessionCreated, v1alpha1.EventSessionCompleted, v1alpha1.EventSessionFailed, v1alpha1.EventSessionExpired,
		v1alpha1.EventSessionCancelled, v1alpha1.EventLatePayment, v1alpha1.EventPaymentMismatch, v1alpha1.EventKeyRotated,
	}
}

func (m *metrics) attempted(result string, took time.Duration) {
	m.attempts.WithLabelValues(result).Inc()
	m.attemptDuration.Observe(took.Seconds())
}

func (m *metrics) ended(kind v1alpha1.WebhookEvent, outcome string) {
	m.events.WithLabelValues(string(kind), outcome).Inc()
}

// expiredEvents counts events whose record is gone, and with it their kind.
func (m *metrics) expiredEvents(n int) {
	m.events.WithLabelValues("", outcomeExpired).Add(float64(n))
}

func (m *metrics) buried(kind v1alpha1.WebhookEvent, reason string) {
	m.buriedTotal.WithLabelValues(reason).Inc()
	m.ended(kind, outcomeDead)
}
