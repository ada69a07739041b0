package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func (s fixture) attempts(t *testing.T) outbox.Attempts {
	t.Helper()
	found, err := s.Attempts(t.Context(), s.asks.MerchantID, time.Now())
	must(t, err)
	return found
}

// The last ten failed attempts are kept; what is delivered leaves nothing.
func TestAttempts_Failed(t *testing.T) {
	s := newFixture(t)
	s.deliver(t, "here")
	endpoint := s.tag + "endpoint:" + s.asks.MerchantID
	if kept := s.redis.HGet(t.Context(), endpoint, "attempts").Val(); kept != "" {
		t.Errorf("a delivery left %q", kept)
	}
	for i := range 12 {
		s.fail(t, "here", func(f *outbox.Failure) {
			f.Reason, f.Answer, f.Took = "status_5xx", fmt.Sprint(500+i), time.Duration(i)*time.Second
		})
	}
	found := s.attempts(t).Failed
	if len(found) != 10 {
		t.Fatalf("%d attempts are kept", len(found))
	}
	for i, attempt := range found {
		want := outbox.Attempt{Kind: "session.cancelled", Reason: "status_5xx", Answer: fmt.Sprint(511 - i), Took: time.Duration(11-i) * time.Second}
		if diff := cmp.Diff(want, attempt, cmpopts.IgnoreFields(outbox.Attempt{}, "At")); diff != "" || time.Since(attempt.At).Abs() > storetest.Timeout {
			t.Errorf("attempt %d at %v (-want +got):\n%s", i, attempt.At, diff)
		}
	}
	if found, err := s.Attempts(t.Context(), s.asks.MerchantID, time.Now().Add(31*24*time.Hour)); err != nil || len(found.Failed) != 0 {
		t.Errorf("after a month there are %d, %v", len(found.Failed), err)
	}
	must(t, s.redis.HSet(t.Context(), endpoint, "attempts", "garbage\n1\t2\n\n").Err())
	if found := s.attempts(t).Failed; len(found) != 0 {
		t.Errorf("garbage is parsed as %+v", found)
	}
}

// One test event in ten seconds, which is one of test mode; its answer is kept, that of an older one is not.
func TestSendWebhookTest(t *testing.T) {
	s := newFixture(t)
	event := func(trigger string) feed.Event {
		return feed.NewWebhookTest(s.asks.MerchantID, "Acme Coffee", trigger, storetest.RotatedAt)
	}
	send := func(trigger string) bool {
		t.Helper()
		sent, err := s.SendWebhookTest(t.Context(), event(trigger))
		must(t, err)
		return sent
	}
	if found := s.attempts(t).WebhookTest; found.EventID != "" || found.Answered {
		t.Errorf("before the first: %+v", found)
	}
	if !send("1") || send("2") {
		t.Error("the first was not sent, or a second one within ten seconds")
	}
	lease := s.one(t)
	if !lease.Event.TestMode || !outbox.IsWebhookTest(lease.Event) || lease.Event.ID != event("1").ID {
		t.Errorf("leased %+v", lease.Event)
	}
	if found := s.attempts(t).WebhookTest; found.EventID != event("1").ID || found.Answered {
		t.Errorf("before its answer: %+v", found)
	}
	must(t, s.AnswerWebhookTest(t.Context(), lease.Event, "here", outbox.Attempt{Reason: "delivered", Answer: "204", Took: 250 * time.Millisecond}))
	if found := s.attempts(t).WebhookTest; !found.Answered || found.Answer != "204" || found.Target != "here" || found.Took != 250*time.Millisecond {
		t.Errorf("answered: %+v", found)
	}
	test := s.tag + "webhooktest:" + s.asks.MerchantID
	must(t, s.redis.HIncrBy(t.Context(), test, "at", -outbox.WebhookTestInterval.Milliseconds()).Err())
	if !send("3") {
		t.Error("none after ten seconds")
	}
	must(t, s.AnswerWebhookTest(t.Context(), lease.Event, "here", outbox.Attempt{Reason: "timeout", Answer: "timeout"})) // late, of the first
	if found := s.attempts(t).WebhookTest; found.EventID != event("3").ID || found.Answered || found.Target != "" {
		t.Errorf("after another one: %+v", found)
	}
	must(t, s.redis.HSet(t.Context(), test, "at", time.Now().Add(time.Hour).UnixMilli()).Err()) // the clock of Redis was set back
	if !send("4") {
		t.Error("a clock that was set back stops test events")
	}
}
