package kube

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// ServerClock compares a clock of this process with that of the Kubernetes API server, by the header Date of its answers.
type ServerClock struct {
	now   func() time.Time
	ahead atomic.Int64 // nanoseconds
}

// NewServerClock returns a ServerClock that has not seen an answer yet.
func NewServerClock(now func() time.Time) *ServerClock { return &ServerClock{now: now} }

// Observe lets every client of the config compare the clocks with each answer.
func (c *ServerClock) Observe(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{next, c} })
}

// Ahead is by how much the clock of this process was ahead at the last answer, at least; negative: it was behind. The time that the
// request took, and the second to which the header is rounded, count in favour of the clock.
func (c *ServerClock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

func (c *ServerClock) compare(sent, received time.Time, header string) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	var ahead time.Duration
	switch latest := date.Add(time.Second); {
	case sent.After(latest):
		ahead = sent.Sub(latest)
	case received.Before(date):
		ahead = received.Sub(date)
	}
	c.ahead.Store(int64(ahead))
}

// observer is a transport of requests to the API server.
type observer struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip sends the request, and compares the clocks.
func (o observer) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := o.clock.now()
	response, err := o.next.RoundTrip(request)
	if err == nil {
		o.clock.compare(sent, o.clock.now(), response.Header.Get("Date"))
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.next }
