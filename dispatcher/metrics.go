package dispatcher

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// metrics of a dispatcher. No label contains a merchant or a value that one chose. The gauges of Redis are the same on
// every dispatcher: aggregate them with max, not sum.
type metrics struct {
	attempts          *prometheus.CounterVec
	attemptDuration   prometheus.Histogram
	events            *prometheus.CounterVec
	firstLag          prometheus.Histogram
	deferred          *prometheus.CounterVec
	newDeadLetters    *prometheus.CounterVec
	endpointsDisabled *prometheus.CounterVec
	testEvents        *prometheus.CounterVec
	leasesLost        prometheus.Counter
	expiredSessions   prometheus.Counter
	expiryLag         prometheus.Histogram

	dueEvents, deadLetters       prometheus.Gauge
	overdueEvent, overdueSession prometheus.Gauge
	refundsOwed                  *prometheus.GaugeVec

	registerInFlight func(func() int)
	registerDropped  func(func() int64)
}

// Outcomes of an event.
const (
	outcomeDelivered = "delivered"
	outcomeDropped   = "dropped"
	outcomeRemoved   = "webhook_removed"
	outcomeDead      = "dead"
	outcomeExpired   = "expired"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	const namespace, subsystem = "merchant_operator", "webhook"
	factory := promauto.With(registerer)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	}
	histogram := func(subsystem, name, help string, buckets ...float64) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		attempts:        counters("attempts_total", "Delivery attempts, by result.", "result"),
		attemptDuration: histogram(subsystem, "attempt_duration_seconds", "Duration of delivery attempts.", .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15),
		events:          counters("events_total", "Finished events, by kind and outcome: delivered, dropped (not subscribed), webhook_removed (dropped 24 hours after that), dead (dead letter), expired (lost after 30 days).", "kind", "outcome"),
		firstLag: histogram(subsystem, "first_attempt_lag_seconds", "Time from an event to its first delivery attempt.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
		deferred:          counters("deferrals_total", "Due events that were deferred without an attempt, by reason.", "reason"),
		newDeadLetters:    counters("dead_letters_total", "Events that became dead letters, by reason.", "reason"),
		endpointsDisabled: counters("endpoints_disabled_total", "Endpoints that were disabled, by cause.", "cause"),
		testEvents:        counters("test_events_total", "Finished events of test mode, which no other counter has, by outcome: delivered, dropped (not subscribed), webhook_removed (dropped 24 hours after that), dead (given up).", "outcome"),
		leasesLost:        counter("leases_lost_total", "Events whose lease ended, so that another dispatcher took them, before this one had finished."),
		dueEvents:         gauge("due_events", "Events in Redis that wait for delivery, now or later, also those of test mode."),
		deadLetters:       gauge("dead_letters", "Dead letters in Redis."),
		overdueEvent:      gauge("overdue_seconds", "How long the oldest due event has waited for a dispatcher; 0: no event is due."),
		overdueSession: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "session", Name: "overdue_seconds",
			Help: "How long the oldest pending session is past its expiry; 0: none is.",
		}),
		refundsOwed: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "refunds_owed",
			Help: "Payments of the last 30 days that are to be refunded and that no rail has confirmed as refunded, by how long they have waited at least.",
		}, []string{"age"}),
		registerInFlight: func(inFlight func() int) {
			factory.NewGaugeFunc(prometheus.GaugeOpts{
				Namespace: namespace, Subsystem: subsystem, Name: "attempts_in_flight", Help: "Delivery attempts in progress.",
			}, func() float64 { return float64(inFlight()) })
		},
		registerDropped: func(dropped func() int64) {
			factory.NewCounterFunc(prometheus.CounterOpts{
				Namespace: namespace, Subsystem: subsystem, Name: "dead_letters_dropped_total",
				Help: "Dead letters that were dropped, the oldest first, because their merchant had too many.",
			}, func() float64 { return float64(dropped()) })
		},
		expiredSessions: factory.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "sessions_expired_total", Help: "Sessions that this dispatcher expired. Sessions that a read expired are not counted.",
		}),
		expiryLag: histogram("session", "expiry_lag_seconds", "How long sessions were past their expiry when the dispatcher expired them, the longest of each sweep.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600),
	}
	m.initialize()
	return m
}

// initialize makes counters start at 0; otherwise rate() would miss the first increment of each label.
func (m *metrics) initialize() {
	for _, reason := range delivery.Reasons() {
		m.attempts.WithLabelValues(reason)
	}
	for _, reason := range slices.Concat(failureReasons(), []string{reasonDisabled, reasonEncodeError, outbox.ReasonDecodeError, outbox.ReasonTooMany}) {
		m.newDeadLetters.WithLabelValues(reason)
	}
	for _, reason := range []string{queue.DeferredBusy, deferredChanged, queue.DeferredBreaker, queue.DeferredStopping, deferredUnsigned, deferredUnknown, deferredUndecodable, deferredUnreadable, deferredRemoved, deferredUnsupported} {
		m.deferred.WithLabelValues(reason)
	}
	for _, bin := range refundAges {
		m.refundsOwed.WithLabelValues(bin.label)
	}
	for _, cause := range []string{outbox.EndpointGone, outbox.EndpointFailing} {
		m.endpointsDisabled.WithLabelValues(cause)
	}
	for _, outcome := range []string{outcomeDelivered, outcomeDropped, outcomeRemoved, outcomeDead} {
		m.testEvents.WithLabelValues(outcome)
	}
	m.expiredEvents(0)
	m.excessEvents(0, false)
	for _, kind := range feed.Kinds() {
		for _, outcome := range []string{outcomeDelivered, outcomeDropped, outcomeRemoved, outcomeDead} {
			m.events.WithLabelValues(string(kind), outcome)
		}
	}
}

// failureReasons are those of attempts that may be the last.
func failureReasons() []string {
	return slices.DeleteFunc(delivery.Reasons(), func(reason string) bool {
		return reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted
	})
}

func (m *metrics) attempted(event feed.Event, result string, duration time.Duration) {
	if event.TestMode {
		return
	}
	m.attempts.WithLabelValues(result).Inc()
	m.attemptDuration.Observe(duration.Seconds())
}

// finished counts an event that was delivered, dropped or given up.
func (m *metrics) finished(event feed.Event, outcome string) {
	if event.TestMode {
		m.testEvents.WithLabelValues(outcome).Inc()
		return
	}
	m.events.WithLabelValues(string(event.Kind), outcome).Inc()
}

func (m *metrics) deferral(event feed.Event, reason string) {
	if !event.TestMode {
		m.deferred.WithLabelValues(reason).Inc()
	}
}

// expiredEvents counts events without a kind, which was in their expired record.
func (m *metrics) expiredEvents(n int) {
	m.events.WithLabelValues("", outcomeExpired).Add(float64(n))
}

// excessEvents counts events that ended because their account had too many. Their kinds were not read.
func (m *metrics) excessEvents(n int, testMode bool) {
	if testMode {
		m.testEvents.WithLabelValues(outcomeDead).Add(float64(n))
		return
	}
	m.newDeadLetters.WithLabelValues(outbox.ReasonTooMany).Add(float64(n))
	m.events.WithLabelValues("", outcomeDead).Add(float64(n))
}

func (m *metrics) deadLettered(event feed.Event, reason string) {
	m.newDeadLetters.WithLabelValues(reason).Inc()
	m.finished(event, outcomeDead)
}
