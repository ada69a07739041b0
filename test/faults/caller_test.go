//go:build faults

package faults

import (
	"net/http"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

const (
	sessions = fixture.Sessions
	me       = fixture.Me
	rotate   = fixture.Rotate
)

// caller is a client that sends each request once.
type caller struct{ http *http.Client }

func newCaller() caller {
	return caller{&http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second}}}
}

// call sends one request; see fixture.Call.
func (c caller) call(base, method, path, bearer, body string, headers ...string) (fixture.Answer, error) {
	return fixture.Call(c.http, base, method, path, bearer, body, headers...)
}

// unavailable reports whether an answer leaves open what came of the request.
func unavailable(a fixture.Answer) bool { return a.Status == http.StatusServiceUnavailable }

// railToken is of a new account that may settle.
func (s *deployment) railToken() string { return shared.secret(s.RailToken()) }

// bucketTag is what the keys of a merchant's state begin with.
func bucketTag(merchantID string) string {
	return string(redis.KeyspaceOf(session.BucketOf(merchantID)))
}

// mustCall fails the test unless the answer has the status.
func (s *deployment) mustCall(status int, base, method, path, bearer, body string, headers ...string) fixture.Answer {
	s.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	c.http.Timeout = fixture.Patience // a rotation may wait for the Kubernetes API
	got, err := c.call(base, method, path, bearer, body, headers...)
	if err != nil || got.Status != status {
		s.t.Fatalf("%s %s: %d %v, %v; want %d", method, path, got.Status, got.Body, err, status)
	}
	return got
}

// callers call, each n-th step of each caller, until stop, which waits for them.
func callers(many int, step func(c caller, n, step int)) (stop func()) {
	done := make(chan struct{})
	var calling sync.WaitGroup
	for n := range many {
		calling.Go(func() {
			c := newCaller()
			for i := n; ; i++ {
				select {
				case <-done:
					return
				default:
					step(c, n, i)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		calling.Wait()
	})
}
