//go:build faults

package faults

import (
	"net/http"
	"sync/atomic"
)

// counter counts requests.
type counter struct{ n atomic.Int64 }

type counted struct {
	next http.RoundTripper
	by   *counter
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper { return counted{next, c} }

// RoundTrip counts and passes on.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	c.by.n.Add(1)
	return c.next.RoundTrip(request)
}
