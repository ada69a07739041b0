package outbox_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// fail lets a new event of the merchant fail, sent to the target.
func (s fixture) fail(t *testing.T, target string, change func(*outbox.Failure)) outbox.Failed {
	t.Helper()
	id := s.event(t)
	failure := outbox.Failure{Details: outbox.Details{Reason: "timeout"}, Retry: time.Hour, Target: target, FailingLimit: 120 * time.Hour}
	if change != nil {
		change(&failure)
	}
	lease := s.one(t)
	if lease.Event.ID != id {
		t.Fatalf("leased %s, want %s", lease.Event.ID, id)
	}
	failed, err := s.Failed(t.Context(), lease, failure)
	must(t, err)
	return failed
}

// endpoint is how the next event finds the endpoint, which it leaves as it is.
func (s fixture) endpoint(t *testing.T) outbox.EndpointState {
	t.Helper()
	s.event(t)
	lease := s.one(t)
	must(t, s.Drop(t.Context(), lease))
	return lease.Endpoint
}

func (s fixture) unhealthy(t *testing.T) []outbox.EndpointState {
	t.Helper()
	states, err := s.UnhealthyEndpoints(t.Context(), s.bucket())
	must(t, err)
	return states
}

// failingFor sets the clock of the endpoint back.
func (s fixture) failingFor(t *testing.T, long time.Duration) {
	t.Helper()
	since := s.redis.Time(t.Context()).Val().Add(-long).UnixMilli()
	must(t, s.redis.HSet(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID, "since", since).Err())
}

func gone(f *outbox.Failure) { f.Gone = true }

func TestAnEndpointIsDisabledWhenItHasFailedForTooLong(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", nil)
	first := s.endpoint(t).FailingSince
	if first.IsZero() {
		t.Fatal("the first failure is not remembered")
	}
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Fatal("disabled at once")
	}
	if again := s.endpoint(t); !again.FailingSince.Equal(first) || again.Disabled() {
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
	if state := s.endpoint(t); !state.Disabled() || state.Cause != outbox.EndpointFailing || state.Target != "here" || state.Reported {
		t.Errorf("found %+v", state)
	}
	if failed := s.fail(t, "here", nil); failed.Disabled { // an attempt that was under way
		t.Error("disabled a second time")
	}
}

func TestASuccessEndsTheFailing(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", nil)
	s.failingFor(t, 200*time.Hour)
	s.event(t)
	must(t, s.Delivered(t.Context(), s.one(t)))
	if state := s.endpoint(t); state != (outbox.EndpointState{MerchantID: s.asks.MerchantID}) {
		t.Errorf("found %+v", state)
	}
	if failed := s.fail(t, "here", nil); failed.Disabled {
		t.Error("the failures before the success still count")
	}
}

func TestFailuresElsewhereDoNotCount(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", nil)
	s.failingFor(t, 200*time.Hour)
	if failed := s.fail(t, "there", nil); failed.Disabled {
		t.Error("disabled for what another target did")
	}
	if state := s.endpoint(t); state.Target != "there" || time.Since(state.FailingSince) > time.Hour {
		t.Errorf("found %+v", state)
	}
}

func TestAnEndpointThatIsGoneIsDisabledAtOnce(t *testing.T) {
	s := newFixture(t)
	if failed := s.fail(t, "here", gone); failed != (outbox.Failed{DeadLettered: true, Disabled: true}) {
		t.Fatalf("%+v", failed)
	}
	if state := s.endpoint(t); !state.Disabled() || state.Cause != outbox.EndpointGone {
		t.Errorf("found %+v", state)
	}
	// A straggler does not bring it back.
	s.event(t)
	must(t, s.Delivered(t.Context(), s.one(t)))
	if !s.endpoint(t).Disabled() {
		t.Error("a success that was under way has enabled it")
	}
}

func TestOnlyAnotherTargetResumesAnEndpoint(t *testing.T) {
	s := newFixture(t)
	resume := func(target string) bool {
		resumed, err := s.ResumeEndpoint(t.Context(), s.asks.MerchantID, target)
		must(t, err)
		return resumed
	}
	if resume("here") {
		t.Error("resumed what was never disabled")
	}
	s.fail(t, "here", gone)
	if resume("here") {
		t.Error("resumed for the same target")
	}
	if !resume("there") {
		t.Error("not resumed for another target")
	}
	if resume("elsewhere") {
		t.Error("resumed twice")
	}
	if state := s.endpoint(t); state.Disabled() || !state.FailingSince.IsZero() || state.ResumedAt.IsZero() {
		t.Errorf("found %+v", state)
	}
	if failed := s.fail(t, "there", gone); !failed.Disabled {
		t.Error("it cannot be disabled again")
	}
}

// Whoever passes the news on may crash at any point, and another one has to see what is left to say.
func TestNewsOfAnEndpointWaitUntilTheyArePassedOn(t *testing.T) {
	s := newFixture(t)
	if states := s.unhealthy(t); len(states) != 0 {
		t.Errorf("unhealthy are %+v", states)
	}
	s.fail(t, "here", gone)
	disabled := s.unhealthy(t)
	if len(disabled) != 1 || disabled[0].MerchantID != s.asks.MerchantID || disabled[0].Reported {
		t.Fatalf("unhealthy are %+v", disabled)
	}
	must(t, s.EndpointReported(t.Context(), disabled[0]))
	if states := s.unhealthy(t); len(states) != 1 || !states[0].Reported {
		t.Errorf("after it was reported: %+v", states)
	}
	if _, err := s.ResumeEndpoint(t.Context(), s.asks.MerchantID, "there"); err != nil {
		t.Fatal(err)
	}
	resumed := s.unhealthy(t)
	if len(resumed) != 1 || resumed[0].Disabled() || resumed[0].ResumedAt.IsZero() || resumed[0].Reported {
		t.Fatalf("after it was resumed: %+v", resumed)
	}
	must(t, s.EndpointReported(t.Context(), disabled[0])) // late
	if states := s.unhealthy(t); len(states) != 1 {
		t.Errorf("old news have taken the place of new ones: %+v", states)
	}
	must(t, s.EndpointReported(t.Context(), resumed[0]))
	if states := s.unhealthy(t); len(states) != 0 {
		t.Errorf("after all was reported: %+v", states)
	}
	if n := s.redis.Exists(t.Context(), s.tag+"endpoint:"+s.asks.MerchantID).Val(); n != 0 {
		t.Error("a healthy endpoint is remembered")
	}
}

func TestAResumedEndpointThatIsDisabledAgainHasThatToTell(t *testing.T) {
	s := newFixture(t)
	s.fail(t, "here", gone)
	_, err := s.ResumeEndpoint(t.Context(), s.asks.MerchantID, "there")
	must(t, err)
	resumed := s.unhealthy(t)[0]
	s.event(t)
	must(t, s.Delivered(t.Context(), s.one(t)))
	if states := s.unhealthy(t); len(states) != 1 {
		t.Fatalf("a success has hidden that it was resumed: %+v", states)
	}
	s.fail(t, "there", gone)
	must(t, s.EndpointReported(t.Context(), resumed))
	if states := s.unhealthy(t); len(states) != 1 || !states[0].Disabled() || states[0].Reported || !states[0].ResumedAt.IsZero() {
		t.Errorf("unhealthy are %+v", states)
	}
}
