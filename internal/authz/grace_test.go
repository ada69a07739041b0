package authz_test

import (
	"errors"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// Who watches the outage of the Kubernetes API must not be locked out by it.
func TestAGoodVerdictOutlivesAnOutage(t *testing.T) {
	const grace = time.Hour
	c := newCluster(t)
	reader, dismissed := c.account("reader"), c.account("dismissed")
	c.allow("reader", "/internal/v1/sessions/*")
	c.allow("dismissed", "/internal/v1/sessions/*")
	guard := c.guard(func(o *authz.Options) { o.Grace = grace })
	check := func(when, token string, want error) {
		t.Helper()
		if err := guard.Check(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	check("in peace", reader, nil)
	check("in peace", dismissed, nil)
	c.disallow("dismissed")
	c.advance(lifetime)
	check("in peace, without the right", dismissed, authz.ErrForbidden)
	check("in peace", reader, nil)

	c.cut.Store(true)
	c.advance(lifetime)
	check("in an outage", reader, nil)
	check("in an outage, without the right", dismissed, authz.ErrUnavailable)
	check("in an outage, never seen before", "a.b.c", authz.ErrUnavailable)
	c.advance(grace - time.Second)
	check("just within the grace", reader, nil)
	c.advance(time.Second)
	check("after the grace", reader, authz.ErrUnavailable)
	c.cut.Store(false)
	check("in peace again", reader, nil)
}
