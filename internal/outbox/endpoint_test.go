package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func (s fixture) watched(t *testing.T) bool {
	t.Helper()
	found, err := s.WatchedEndpoints(t.Context(), s.bucket())
	must(t, err)
	return slices.ContainsFunc(found.States, func(state outbox.EndpointState) bool { return state.MerchantID == s.asks.MerchantID })
}

// failingFor sets the clock of the endpoint back.
func (s fixture) failingFor(t *testing.T, long time.Duration) {
	t.Helper()
	since := s.redis.Time(t.Context()).Val().Add(-long).UnixMilli()
	must(t, s.redis.HSet(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "since", since).Err())
}

func TestEndpoint_DisabledAfterLimit(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", nil)
	first := s.state(t).FailingSince
	if first.IsZero() {
		t.Fatal("the first failure is not remembered")
	}
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Fatal("disabled at once")
	}
	if again := s.state(t); !again.FailingSince.Equal(first) || again.Disabled() {
		t.Errorf("after another failure: %+v, failing since %s", again, first)
	}
	s.failingFor(t, 120*time.Hour-time.Minute)
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Fatal("disabled too early")
	}
	s.failingFor(t, 120*time.Hour)
	if failed := s.fail(t, "here", nil); failed != (outbox.Failed{DeadLettered: true, Disabled: true}) {
		t.Fatalf("after 120 h: %+v", failed)
	}
	if state := s.state(t); !state.Disabled() || state.Cause != outbox.EndpointFailing || state.Target != "here" || !s.watched(t) {
		t.Errorf("found %+v", state)
	}
	if failed := s.fail(t, "here", nil); failed.Disabled { // an attempt that was under way
		t.Error("disabled a second time")
	}
}

// What no attempt has found yet is reported, and disables nothing: an endpoint that is allowed after a week gets its first event.
func TestEndpoint_Refused(t *testing.T) {
	s := newFixture(t)
	refuse := func(target string) bool {
		t.Helper()
		recorded, err := s.RecordRefusal(t.Context(), s.asks.MerchantID, outbox.Target{ID: target}, "URLRefused", "refused_scheme")
		must(t, err)
		return recorded
	}
	if !refuse("here") || refuse("here") {
		t.Error("want it recorded once")
	}
	refused := s.state(t)
	if refused.PermanentSince.IsZero() || !refused.FailingSince.IsZero() || refused.Target != "here" || refused.LastFailure.Reason != "URLRefused" ||
		refused.LastFailure.Answer != "refused_scheme" || !s.watched(t) {
		t.Errorf("found %+v", refused)
	}
	must(t, s.redis.HSet(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "permanent", refused.PermanentSince.Add(-200*time.Hour).UnixMilli()).Err())
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Error("its first attempt disabled it")
	}
	s.deliver(t, "here")
	if state := s.state(t); !state.PermanentSince.IsZero() || state.HealthySince.IsZero() {
		t.Errorf("after a delivery: %+v", state)
	}
	if !refuse("here") {
		t.Error("a healthy endpoint is not refused")
	}
	s.deliver(t, "here") // the rule that refused it is gone
	if state := s.state(t); !state.PermanentSince.IsZero() {
		t.Errorf("after another delivery: %+v", state)
	}
	s.fail(t, "here", gone)
	if refuse("here") || !s.state(t).Disabled() {
		t.Error("a refusal ended that it is disabled")
	}
	if !refuse("there") {
		t.Error("another target is not refused")
	}
	if state := s.state(t); state.Disabled() || state.Target != "there" || state.PermanentSince.IsZero() || !state.HealthySince.IsZero() {
		t.Errorf("at another target: %+v", state)
	}
}

// Once a rule that refused an endpoint is gone, nothing is known of the endpoint, whether events were tried meanwhile or not.
func TestEndRefusal(t *testing.T) {
	for name, meanwhile := range map[string]func(*testing.T, fixture){
		"before the first event": func(*testing.T, fixture) {},
		"after a failure":        func(t *testing.T, s fixture) { t.Helper(); s.fail(t, "here", permanent) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			end := func(state outbox.EndpointState) bool {
				t.Helper()
				ended, err := s.EndRefusal(t.Context(), state)
				must(t, err)
				return ended
			}
			must(t, second(s.RecordRefusal(t.Context(), s.asks.MerchantID, outbox.Target{ID: "here"}, "AddressRefused", "refused_address")))
			meanwhile(t, s)
			state := s.state(t)
			if end(with(state, func(e *outbox.EndpointState) { e.Target = "there" })) {
				t.Error("ended at another target")
			}
			if end(with(state, func(e *outbox.EndpointState) { e.RefusedSince = e.RefusedSince.Add(-time.Second) })) {
				t.Error("ended a newer one than was seen")
			}
			if !end(state) || end(state) {
				t.Error("not ended once")
			}
			ended := s.state(t)
			if ended.Target != "here" || !ended.RefusedSince.IsZero() || !ended.PermanentSince.IsZero() || !ended.FailingSince.IsZero() ||
				ended.ChangedAt.IsZero() || !ended.RecoveredAt.Equal(ended.ChangedAt) || !s.watched(t) {
				t.Errorf("found %+v", ended)
			}
		})
	}
}

// Only what a rule refuses ends with the rule, and nothing enables a disabled endpoint.
func TestEndRefusal_OtherFailures(t *testing.T) {
	refuse := func(t *testing.T, s fixture) {
		t.Helper()
		must(t, second(s.RecordRefusal(t.Context(), s.asks.MerchantID, outbox.Target{ID: "here"}, "AddressRefused", "refused_address")))
	}
	for name, arrange := range map[string]func(*testing.T, fixture){
		"no event yet":        func(*testing.T, fixture) {},
		"rejected":            func(t *testing.T, s fixture) { t.Helper(); s.fail(t, "here", permanent) },
		"refused elsewhere":   func(t *testing.T, s fixture) { t.Helper(); refuse(t, s); s.fail(t, "there", permanent) },
		"refused, then moved": func(t *testing.T, s fixture) { t.Helper(); refuse(t, s); s.resume(t, "there") },
		"delivered since":     func(t *testing.T, s fixture) { t.Helper(); refuse(t, s); s.deliver(t, "here") },
		"disabled":            func(t *testing.T, s fixture) { t.Helper(); refuse(t, s); s.fail(t, "here", gone) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			arrange(t, s)
			before := s.state(t)
			ended, err := s.EndRefusal(t.Context(), before)
			if ended || err != nil {
				t.Errorf("ended: %t, %v", ended, err)
			}
			if diff := cmp.Diff(before, s.state(t), cmp.AllowUnexported(outbox.EndpointState{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEndpoint_RecoversWithDelivery(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", permanent)
	s.failingFor(t, 200*time.Hour)
	s.deliver(t, "here")
	state := s.state(t)
	if !state.FailingSince.IsZero() || !state.PermanentSince.IsZero() || state.HealthySince.IsZero() || !state.LastDelivery.Equal(state.HealthySince) {
		t.Errorf("found %+v", state)
	}
	if last := state.LastFailure; last.Reason != "Rejected" || last.Status() != 401 || last.Time.IsZero() {
		t.Errorf("the last failure is %+v", last)
	}
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Error("the failures before the success still count")
	}
}

// An endpoint that fails now and then without being unhealthy is healthy since its first delivery.
func TestEndpoint_HealthySince(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	since := s.state(t).HealthySince
	s.fail(t, "here", nil)
	s.deliver(t, "here")
	if state := s.state(t); !state.HealthySince.Equal(since) {
		t.Errorf("healthy since %s, then since %s", since, state.HealthySince)
	}
	for what, failing := range map[string]func(){
		"for five minutes": func() { s.fail(t, "here", nil); s.failingFor(t, outbox.UnhealthyAfter) },
		"permanently":      func() { s.fail(t, "here", permanent) },
		"elsewhere":        func() { s.fail(t, "there", nil) },
	} {
		must(t, s.redis.HSet(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "healthy", 1).Err())
		failing()
		s.deliver(t, "here")
		if state := s.state(t); state.HealthySince.UnixMilli() == 1 {
			t.Errorf("failed %s: healthy since before", what)
		}
	}
}

func TestEndpoint_FailuresOfOtherTarget(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", permanent)
	s.failingFor(t, 200*time.Hour)
	if failed := s.fail(t, "there", nil); failed.Disabled {
		t.Error("disabled by the failures of another target")
	}
	if state := s.state(t); state.Target != "there" || !state.PermanentSince.IsZero() || time.Since(state.FailingSince) > time.Hour {
		t.Errorf("found %+v", state)
	}
}

// Dispatchers hear of another URL one after the other, the last up to Lag later. Whatever they report, and in whatever order, the newest target
// that one of them knows is the endpoint's.
func TestEndpoint_FormerTarget(t *testing.T) {
	const lag = 10 * time.Minute
	before := outbox.Target{ID: "before", Generation: 1, Lag: lag}
	former := outbox.Target{ID: "former", Generation: 2, Lag: lag}
	present := outbox.Target{ID: "present", Generation: 3, Lag: lag}
	at := func(target outbox.Target) func(*outbox.Failure) {
		return func(f *outbox.Failure) { gone(f); f.Target = target }
	}
	deliver := func(t *testing.T, s fixture, target outbox.Target) {
		t.Helper()
		s.event(t)
		must(t, s.RecordDelivery(t.Context(), s.one(t), target))
	}
	noted := map[string]func(*testing.T, fixture){
		"by a delivery": func(t *testing.T, s fixture) { t.Helper(); deliver(t, s, present) },
		"by a failure": func(t *testing.T, s fixture) {
			t.Helper()
			s.fail(t, "", func(f *outbox.Failure) { f.Target = present })
		},
		"by its change": func(t *testing.T, s fixture) {
			t.Helper()
			deliver(t, s, before)
			must(t, second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, present)))
		},
		"by its change before the first event": func(t *testing.T, s fixture) {
			t.Helper()
			must(t, second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, former)))
			must(t, second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, present)))
			if state := s.state(t); state.Target != present.ID || !state.ChangedAt.IsZero() || s.watched(t) {
				t.Errorf("what got no event yet is reported: %+v", state)
			}
		},
		"as one of long ago that was put back": func(t *testing.T, s fixture) {
			t.Helper()
			back := present
			back.Generation = before.Generation
			deliver(t, s, back)
			deliver(t, s, present)
		},
	}
	for name, note := range noted {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			note(t, s)
			before := s.state(t)
			if failed := s.fail(t, "", at(former)); failed != (outbox.Failed{Outdated: true}) {
				t.Errorf("a former target is gone: %+v", failed)
			}
			lease := s.one(t) // it is due at once, as if it had not been tried
			if lease.Attempts != 0 || !lease.Endpoint.Outdates(former, s.redis.Time(t.Context()).Val()) {
				t.Errorf("leased %+v", lease)
			}
			must(t, s.RecordDelivery(t.Context(), lease, former))
			if resumed, err := s.ResumeEndpoint(t.Context(), s.asks.MerchantID, former); resumed || err != nil {
				t.Errorf("resumed for a former target: %t, %v", resumed, err)
			}
			if diff := cmp.Diff(before, s.state(t), cmp.AllowUnexported(outbox.EndpointState{})); diff != "" {
				t.Errorf("the endpoint after reports of a former target:\n%s", diff)
			}
			if failed := s.fail(t, "", at(present)); !failed.Disabled {
				t.Errorf("the present target is gone: %+v", failed)
			}
		})
	}
	t.Run("a newer one after it", func(t *testing.T) {
		s := newFixture(t)
		deliver(t, s, former)
		if failed := s.fail(t, "", at(present)); !failed.Disabled {
			t.Errorf("the newer target is gone: %+v", failed)
		}
		if state := s.state(t); state.Target != present.ID || state.Outdates(present, time.Now()) {
			t.Errorf("found %+v", state)
		}
	})
	t.Run("restored from a backup", func(t *testing.T) {
		s := newFixture(t)
		deliver(t, s, present)
		must(t, s.redis.HIncrBy(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "noted", -lag.Milliseconds()).Err())
		deliver(t, s, before)
		if state := s.state(t); state.Target != before.ID || state.Generation != before.Generation {
			t.Errorf("found %+v", state)
		}
	})
	t.Run("of an operator that publishes no generation", func(t *testing.T) {
		s := newFixture(t)
		deliver(t, s, present)
		unknown := before
		unknown.Generation = 0
		deliver(t, s, unknown)
		if state := s.state(t); state.Target != before.ID {
			t.Errorf("found %+v", state)
		}
	})
}

func TestEndpoint_Gone(t *testing.T) {
	s := newFixture(t)
	if failed := s.fail(t, "here", gone); failed != (outbox.Failed{DeadLettered: true, Disabled: true}) {
		t.Fatalf("%+v", failed)
	}
	if state := s.state(t); !state.Disabled() || state.Cause != outbox.EndpointGone {
		t.Errorf("found %+v", state)
	}
	s.deliver(t, "here") // an attempt that was under way
	if !s.state(t).Disabled() {
		t.Error("a success that was under way has enabled it")
	}
}

func (s fixture) resume(t *testing.T, target string) bool {
	t.Helper()
	resumed, err := s.ResumeEndpoint(t.Context(), s.asks.MerchantID, outbox.Target{ID: target})
	must(t, err)
	return resumed
}

func TestResumeEndpoint(t *testing.T) {
	s := newFixture(t)
	resume := func(target string) bool { t.Helper(); return s.resume(t, target) }
	if resume("here") {
		t.Error("resumed what got no event yet")
	}
	s.fail(t, "here", gone)
	if resume("here") {
		t.Error("resumed for the same target")
	}
	if !resume("there") || resume("there") {
		t.Error("not resumed once for another target")
	}
	s.fail(t, "there", gone)
	if !resume("") || resume("") { // whatever its target, but only if it is disabled
		t.Error("not resumed once for the same target")
	}
	if state := s.state(t); state.Target != "there" || state.Disabled() || !state.FailingSince.IsZero() || !state.PermanentSince.IsZero() || state.ChangedAt.IsZero() || !s.watched(t) {
		t.Errorf("found %+v", state)
	}
	if failed := s.fail(t, "there", gone); !failed.Disabled {
		t.Error("it cannot be disabled again")
	}
}

// A healthy endpoint is watched until its health is reported, an unhealthy one until it is healthy.
func TestWatchedEndpoints_UntilHealthIsReported(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	if !s.watched(t) {
		t.Fatal("the first delivery will not be reported")
	}
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Healthy", true))
	s.deliver(t, "here")
	if s.watched(t) {
		t.Fatal("a healthy endpoint is watched")
	}
	if state := s.state(t); !state.RecoveredAt.IsZero() {
		t.Errorf("it never was unhealthy: %+v", state)
	}
	s.fail(t, "here", func(f *outbox.Failure) { permanent(f); f.Retry = -1 })
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Rejected", false))
	failing := s.state(t)
	if !s.watched(t) || failing.Reported.Reason != "Rejected" || failing.Reported.At.IsZero() {
		t.Fatalf("after it was reported: %+v", failing)
	}
	must(t, s.UnwatchEndpoint(t.Context(), failing)) // late: it has failed since
	if !s.watched(t) {
		t.Fatal("a failing endpoint is not watched")
	}
	s.deliver(t, "here")
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Healthy", true))
	if s.watched(t) {
		t.Error("it is watched after its recovery was reported")
	}
	if state := s.state(t); state.RecoveredAt.IsZero() || !state.RecoveredAt.Equal(state.HealthySince) {
		t.Errorf("it has recovered: %+v", state)
	}
	must(t, s.ForgetEndpoint(t.Context(), s.asks.MerchantID))
	if state := s.state(t); s.watched(t) || state.Target != "" || !state.LastDelivery.IsZero() || state.Reported != (outbox.Report{}) {
		t.Errorf("forgotten, it is %+v", state)
	}
}

// A dispatcher reads an endpoint first, and unwatches it when there was nothing to report: what was delivered between the two is reported.
func TestUnwatchEndpoint_DeliveredMeanwhile(t *testing.T) {
	t.Run("the first event", func(t *testing.T) {
		s := newFixture(t)
		before := s.state(t)
		s.deliver(t, "here")
		must(t, s.UnwatchEndpoint(t.Context(), before))
		if !s.watched(t) {
			t.Error("its health will not be reported")
		}
	})
	t.Run("a recovery", func(t *testing.T) {
		s := newFixture(t)
		s.deliver(t, "here")
		must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Healthy", true))
		must(t, s.redis.HIncrBy(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "healthy", -1000).Err())
		before := s.state(t)
		s.fail(t, "here", permanent)
		s.deliver(t, "here")
		must(t, s.UnwatchEndpoint(t.Context(), before))
		if !s.watched(t) {
			t.Error("its health will not be reported")
		}
	})
}

// Counts of waiting events and dead letters that were reported are reported again when they have changed.
func TestWatchedEndpoints_UntilCountsAreReported(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	s.event(t)
	waiting := s.state(t)
	must(t, s.RecordEndpointReport(t.Context(), waiting, "Healthy", true))
	if waiting.Pending != 1 || !s.watched(t) {
		t.Fatalf("with a waiting event: %+v", waiting)
	}
	must(t, s.RecordDelivery(t.Context(), s.one(t), outbox.Target{ID: "here"}))
	if state := s.state(t); !state.CountsChanged() {
		t.Errorf("the event is delivered: %+v", state)
	}
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Healthy", true))
	if s.watched(t) {
		t.Fatal("it is watched after the delivery was reported")
	}
	s.fail(t, "here", func(f *outbox.Failure) { f.Retry = -1 })
	s.deliver(t, "here")
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Healthy", true))
	if s.watched(t) {
		t.Fatal("it is watched after the dead letter was reported")
	}
	letters := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	before := s.state(t)
	must(t, second(s.Resend(t.Context(), outbox.ResendRequest{IDs: letters})))
	must(t, s.RecordEndpointReport(t.Context(), before, "Healthy", true)) // read before they were sent again
	must(t, s.UnwatchEndpoint(t.Context(), s.state(t)))
	if state := s.state(t); !s.watched(t) || !state.CountsChanged() {
		t.Errorf("sent again: %+v", state)
	}
}

// It is not known whose report the API server has got last.
func TestRecordEndpointReport_TwoDispatchers(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	before := s.state(t)
	s.fail(t, "here", permanent)
	must(t, s.RecordEndpointReport(t.Context(), s.state(t), "Rejected", false))
	must(t, s.RecordEndpointReport(t.Context(), before, "Healthy", true))
	if state := s.state(t); state.Reported.Reason != "" || !s.watched(t) {
		t.Errorf("found %+v", state)
	}
}

func TestRecordEndpointReport_Budget(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	for i := range outbox.ReportBurst {
		if state := s.state(t); !state.MayReportChange(s.redis.Time(t.Context()).Val()) {
			t.Fatalf("report %d is not allowed", i+1)
		}
		must(t, s.RecordEndpointReport(t.Context(), s.state(t), fmt.Sprint("reason ", i), false))
	}
	now := s.redis.Time(t.Context()).Val()
	state := s.state(t)
	if state.MayReportChange(now) || !state.MayReportChange(now.Add(outbox.ReportInterval)) {
		t.Error("the budget is not used up, or not for a minute")
	}
	must(t, s.RecordEndpointReport(t.Context(), state, state.Reported.Reason, false)) // no change
	if !s.state(t).MayReportChange(now.Add(outbox.ReportInterval)) {
		t.Error("a report without a change is charged")
	}
}

func TestEndpoints_Counts(t *testing.T) {
	s := newFixture(t)
	other := s
	other.asks = storetest.MerchantIn(s.bucket())
	want := func(when string, of fixture, pending, dead int64) {
		t.Helper()
		if state := of.state(t); state.Pending != pending || state.Dead != dead {
			t.Errorf("%s: %d pending, %d dead; want %d and %d", when, state.Pending, state.Dead, pending, dead)
		}
	}
	want("at first", s, 0, 0)
	ids := []string{s.deadLetter(t, "dns"), s.deadLetter(t, "dns")}
	s.fail(t, "here", nil)
	other.deadLetter(t, "dns")
	want("with dead letters", s, 1, 2)
	want("of the neighbour", other, 0, 1)
	resent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: ids})
	if err != nil || resent.Sent != 2 {
		t.Fatalf("sent %d again: %v", resent.Sent, err)
	}
	want("right after they were sent again", s, 3, 0)
	want("of the neighbour, after that", other, 0, 1)
	for _, lease := range s.leaseFor(t, time.Hour, 10) {
		must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}))
	}
	want("after their delivery", s, 1, 0)
}
