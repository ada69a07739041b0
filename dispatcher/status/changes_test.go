package status

import (
	"errors"
	"slices"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// A status that cannot be written is tried again after a pause, and then seldom.
func TestHandleChanges_Failed(t *testing.T) {
	f := newFixture(t)
	tested := func(trigger string) (endpoint endpoints.Endpoint) {
		endpoint = f.EndpointAt("http://127.0.0.1:1", 7)
		endpoint.TestTrigger = trigger
		f.Index.Put(endpoint)
		return endpoint
	}
	large, acme := tested("never"), tested("monday")
	f.reports.SetFailFor(large, errors.New("etcdserver: request is too large"))
	r := f.reporter()
	start(t, r)
	r.changes.Add(large.MerchantID)
	dispatchertest.Eventually(t, "it was tried again", func() bool { return f.reports.Tries(large) >= 2 })
	r.changes.Add(acme.MerchantID)
	dispatchertest.Eventually(t, "another one is in the status", func() bool { return slices.Contains(f.reports.Triggers(), "monday") })
	if n := f.reports.Tries(large); n > 3 {
		t.Errorf("%d tries", n)
	}
	f.reports.SetFailFor(large, nil)
	dispatchertest.Eventually(t, "it is in the status", func() bool { return slices.Contains(f.reports.Triggers(), "never") })
}
