package console

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a console. No label contains a person or a merchant.
type metrics struct {
	requests *prometheus.HistogramVec
	signIns  *prometheus.CounterVec
	actions  *prometheus.CounterVec
}

// Results of an action.
const (
	actionDone   = "done"
	actionFailed = "failed"
)

// Results of a sign-in.
const (
	signInDone        = "done"
	signInRefused     = "refused"
	signInUnavailable = "unavailable"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		requests: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "merchant_operator_console_request_duration_seconds", Help: "Duration of requests to the console, by status code.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"code"}),
		signIns: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_console_sign_ins_total",
			Help: "Sign-ins at the console, by result: done, refused, unavailable (the identity provider does not answer).",
		}, []string{"result"}),
		actions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_console_actions_total",
			Help: "What people did in the console, by action and result: done or failed.",
		}, []string{"action", "result"}),
	}
	for _, action := range actions() {
		m.actions.WithLabelValues(action, actionDone)
		m.actions.WithLabelValues(action, actionFailed)
	}
	for _, result := range []string{signInDone, signInRefused, signInUnavailable} {
		m.signIns.WithLabelValues(result)
	}
	return m
}
