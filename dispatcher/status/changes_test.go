package status

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
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

// A platform that changes its rules restarts its dispatchers one after the other. The one that started last knows the rules: it ends a refusal
// that they do not make, with or without events, and those that run still end none of its own.
func TestRefusal_EndsWithItsRule(t *testing.T) {
	refused := func(string) (delivery.Result, bool) {
		return delivery.Result{Reason: delivery.ReasonRefusedAddress}, true
	}
	for name, events := range map[string]int{"no event": 0, "an event": 1} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			acme := f.EndpointAt("https://hooks.shops.svc.cluster.local", 7)
			before, strict := f.reporter(), f.reporter()
			strict.refusal = refused
			strict.changes.Add(acme.MerchantID)
			dispatchertest.Must(t, dispatchertest.Second(strict.handleChanges(t.Context())))
			dispatchertest.Must(t, dispatchertest.Second(strict.reportHealth(t.Context())))
			for range events {
				f.Event(t, acme.MerchantID)
				dispatchertest.Must(t, dispatchertest.Second(f.Outbox.RecordFailure(t.Context(), f.lease(t, 7), outbox.Failure{
					Retry: time.Hour, Target: acme.Noted(0), FailingLimit: time.Hour, Health: "AddressRefused", Permanent: true,
				})))
			}
			for _, running := range []*Reporter{before, strict} {
				for range 2 { // what the first round changes, the second one reports
					dispatchertest.Must(t, dispatchertest.Second(running.reportHealth(t.Context())))
				}
			}
			f.reports.AwaitReasons(t, "AddressRefused")
			start(t, f.reporter())
			if report := f.reports.AwaitLast(t, "EndpointChanged"); report.Status != metav1.ConditionUnknown || report.EventType != corev1.EventTypeNormal {
				t.Errorf("reported %+v", report)
			}
		})
	}
}

// A URL is changed before the first event, and another dispatcher, which hears of that later, gets a 410 from the former one: the event is not lost.
func TestHandleChanges_BeforeTheFirstEvent(t *testing.T) {
	f := newFixture(t)
	former := f.EndpointAt("https://former.example", 7)
	former.Generation = 1
	f.Event(t, former.MerchantID)
	lease := f.lease(t, 7)
	present := former
	present.URL, present.Target, present.Generation = "https://shop.example", "present", 2
	f.Index.Put(present)
	r := f.reporter()
	r.changes.Add(present.MerchantID)
	dispatchertest.Must(t, dispatchertest.Second(r.handleChanges(t.Context())))
	failed, err := f.Outbox.RecordFailure(t.Context(), lease, outbox.Failure{Gone: true, Target: former.Noted(0), FailingLimit: time.Hour, Health: "EndpointGone", Permanent: true})
	if err != nil || failed != (outbox.Failed{Outdated: true}) {
		t.Errorf("a 410 of the former URL: %+v, %v", failed, err)
	}
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if reasons := f.reports.Reasons(); len(reasons) > 0 {
		t.Errorf("reported %v before the first event", reasons)
	}
}

// A tenant that tests all of its endpoints at once delays the test of another tenant by one of its own.
func TestHandleChanges_TakeTurns(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	tested := func(namespace, trigger string) {
		endpoint := f.EndpointAt("https://shop.example/", 7)
		endpoint.Merchant.Namespace, endpoint.TestTrigger = namespace, trigger
		f.Index.Put(endpoint)
		r.changes.Add(endpoint.MerchantID)
	}
	for range 2 * changesPerTurn {
		tested("attacker", "again")
	}
	for rounds, late := range []string{"with them", "during their tests"} {
		tested("victim", late)
		if more, err := r.handleChanges(t.Context()); err != nil || !more {
			t.Fatalf("more %t, %v", more, err)
		}
		if at := slices.Index(f.reports.Triggers(), late); at < 0 || at > rounds*changesPerTurn+1 {
			t.Errorf("the test that came %s is number %d", late, at)
		}
	}
	if more, err := r.handleChanges(t.Context()); err != nil || more || len(f.reports.Triggers()) != 2*changesPerTurn+2 {
		t.Errorf("%d of all tests are sent (%v)", len(f.reports.Triggers()), err)
	}
}

// A status that cannot be written, as its tenant may see to, is no failure of Redis: that would be
// logged as one, and slow down the loop for all.
func TestHandleChanges_StatusRefused(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	endpoint := f.EndpointAt("https://shop.example/", 7)
	endpoint.TestTrigger = "2"
	f.Index.Put(endpoint)
	r.changes.Add(endpoint.MerchantID)
	f.reports.SetFail(errors.New("the Merchant is too large"))
	dispatchertest.Must(t, dispatchertest.Second(r.handleChanges(t.Context())))
	f.reports.SetFail(nil)
	dispatchertest.Must(t, dispatchertest.Second(r.handleChanges(t.Context())))
	if tests := f.reports.Triggers(); !slices.Contains(tests, "2") {
		t.Errorf("tests %v are reported", tests)
	}
}
