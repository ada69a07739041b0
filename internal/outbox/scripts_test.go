package outbox_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Each operation on a Redis at maxmemory is done whole or not at all, and what takes something out of it is done.
func TestScripts_FullRedis(t *testing.T) {
	server := redistest.Start(t)
	c := storetest.Inspect(t, server)
	var cases []storetest.FullCase
	add := func(name string, drains bool, arrange func(*testing.T, fixture) func() error) {
		cases = append(cases, storetest.FullCase{Name: name, Drains: drains, Arrange: func(t *testing.T, s *storetest.Services, asks admission.Request) func() error {
			t.Helper()
			return arrange(t, fixture{s, server, c, asks, storetest.Tag(asks.MerchantID)})
		}})
	}
	// leased has an operation on a leased event of a live account, and the same of test mode.
	leased := func(name string, drains bool, operation func(*testing.T, fixture, outbox.Lease) error) {
		add(name, drains, func(t *testing.T, s fixture) func() error {
			t.Helper()
			s.event(t)
			lease := s.one(t)
			return func() error { return operation(t, s, lease) }
		})
		add(name+" in test mode", drains, func(t *testing.T, s fixture) func() error {
			t.Helper()
			s = s.inTestMode()
			s.event(t)
			lease := s.one(t)
			return func() error { return operation(t, s, lease) }
		})
	}
	fullHolders(add)
	fullLeases(add, leased)
	fullOutcomes(add, leased)
	fullDeadLetters(add)
	fullRecords(add)
	fullEndpoints(add)
	storetest.CheckFull(t, server, cases)
}

type (
	addFullCase   = func(name string, drains bool, arrange func(*testing.T, fixture) func() error)
	addLeasedCase = func(name string, drains bool, operation func(*testing.T, fixture, outbox.Lease) error)
)

func fullHolders(add addFullCase) {
	const one, another = "one", "another"
	add("the first heartbeat", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error { return second(s.Heartbeat(t.Context(), s.bucket(), one, true)) }
	})
	add("a heartbeat", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, second(s.Heartbeat(t.Context(), s.bucket(), one, true)))
		return func() error { return second(s.Heartbeat(t.Context(), s.bucket(), one, false)) }
	})
	add("remove a holder", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, second(s.Heartbeat(t.Context(), s.bucket(), another, true)))
		return func() error { return second(s.RemoveHolder(t.Context(), s.bucket(), another, "1")) }
	})
	add("forget a holder", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, second(s.Heartbeat(t.Context(), s.bucket(), another, true)))
		must(t, second(s.RemoveHolder(t.Context(), s.bucket(), another, "1")))
		return func() error { return s.ForgetHolder(t.Context(), s.bucket(), another) }
	})
	add("free leases", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.event(t)
		s.one(t)
		return func() error { return second(s.FreeLeases(t.Context(), s.bucket(), "a test")) }
	})
}

func fullLeases(add addFullCase, leased addLeasedCase) {
	lease := func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error {
			got, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{HolderIdentity: "a test", For: time.Hour, Limit: 10})
			if err == nil && len(got.Leases)+len(got.Undecodable)+got.Expired != 1 {
				err = errors.New("not one event was leased")
			}
			return err
		}
	}
	add("lease", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.event(t)
		return lease(t, s)
	})
	add("lease of an event that expired", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, s.redis.Del(t.Context(), s.tag+"event:"+s.event(t)).Err())
		return lease(t, s)
	})
	add("lease of an unreadable event", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, s.redis.HSet(t.Context(), s.tag+"event:"+s.event(t), "b", "garbage").Err())
		return lease(t, s)
	})
	leased("defer", true, func(t *testing.T, s fixture, lease outbox.Lease) error {
		t.Helper()
		return s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: lease, Delay: time.Minute})
	})
	add("count the backlog", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.event(t)
		return func() error { return second(s.Backlog(t.Context(), s.bucket())) }
	})
	add("poll for work", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error {
			return errors.Join(second(s.PendingWork(t.Context())), second(s.PendingReports(t.Context())))
		}
	})
	for name, inMode := range map[string]func(fixture) fixture{"live": func(s fixture) fixture { return s }, "test": fixture.inTestMode} {
		add("end excess events, "+name, true, func(t *testing.T, s fixture) func() error {
			t.Helper()
			s = inMode(s)
			for range 3 {
				s.event(t)
			}
			return func() error { return endExcess(t, s, 1) }
		})
	}
}

func endExcess(t *testing.T, s fixture, most int64) error {
	t.Helper()
	all, err := s.Excess(t.Context(), s.bucket(), most)
	for _, excess := range all {
		err = errors.Join(err, second(s.EndExcess(t.Context(), excess, "acme/coffee")))
	}
	return err
}

func fullOutcomes(add addFullCase, leased addLeasedCase) {
	leased("deliver", true, func(t *testing.T, s fixture, lease outbox.Lease) error {
		t.Helper()
		return s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "a target"})
	})
	leased("drop", true, func(t *testing.T, s fixture, lease outbox.Lease) error {
		t.Helper()
		return s.Drop(t.Context(), lease)
	})
	failures := map[string]outbox.Failure{"fail": {Retry: time.Minute, FailingLimit: time.Hour}, "fail for the last time": {Retry: -1, FailingLimit: time.Hour}, "gone": {Gone: true, Permanent: true}, "permanent": {Retry: time.Minute, Permanent: true, FailingLimit: time.Hour}}
	for name, failure := range failures {
		failure.Details = outbox.Details{Reason: "timeout", Answer: "timeout"}
		failure.Health, failure.Target = "Timeout", outbox.Target{ID: "a target"}
		leased(name, true, func(t *testing.T, s fixture, lease outbox.Lease) error {
			t.Helper()
			return second(s.RecordFailure(t.Context(), lease, failure))
		})
	}
	add("fail at a former target", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.fail(t, "a target", func(f *outbox.Failure) { f.Target.Generation = 2 })
		s.event(t)
		lease := s.one(t)
		former := outbox.Target{ID: "a former target", Generation: 1, Lag: time.Minute}
		return func() error {
			failed, err := s.RecordFailure(t.Context(), lease, outbox.Failure{Gone: true, Target: former, FailingLimit: time.Hour})
			if err == nil && !failed.Outdated {
				err = errors.New("it was counted")
			}
			return err
		}
	})
	add("deliver after a failure", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.fail(t, "a target", permanent)
		s.event(t)
		lease := s.one(t)
		return func() error { return s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "a target"}) }
	})
	leased("make a dead letter", true, func(t *testing.T, s fixture, lease outbox.Lease) error {
		t.Helper()
		return s.DeadLetter(t.Context(), lease, outbox.Details{Reason: "endpoint_disabled"})
	})
}

func fullDeadLetters(add addFullCase) {
	add("list dead letters", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.deadLetter(t, "timeout")
		return func() error {
			return second(s.DeadLetters(t.Context(), outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
		}
	})
	for name, merchantID := range map[string]func(fixture) string{"by id": func(fixture) string { return "" }, "of a merchant": func(s fixture) string { return s.asks.MerchantID }} {
		add("resend "+name, true, func(t *testing.T, s fixture) func() error {
			t.Helper()
			id := s.deadLetter(t, "timeout")
			return func() error {
				return second(s.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}, MerchantID: merchantID(s)}))
			}
		})
	}
	add("drop the oldest dead letters", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, s.redis.ZAdd(t.Context(), s.tag+"dead:"+s.asks.MerchantID, oldDeadLetters()...).Err())
		s.event(t)
		lease := s.one(t)
		return func() error { return s.DeadLetter(t.Context(), lease, outbox.Details{Reason: "timeout"}) }
	})
}

// oldDeadLetters are as many as a merchant keeps.
func oldDeadLetters() (letters []goredis.Z) {
	before := float64(time.Now().Add(-time.Minute).UnixMilli())
	for i := range outbox.MaxDeadLetters {
		letters = append(letters, goredis.Z{Score: before, Member: fmt.Sprint("evt_other_", i)})
	}
	return letters
}

func fullRecords(add addFullCase) {
	add("record a rotation", false, func(t *testing.T, s fixture) func() error {
		t.Helper()
		event := storetest.Rotation(s.asks, 2)
		return func() error { return second(s.RecordRotation(t.Context(), event, event.OccurredAt, feed.History{})) }
	})
	add("see an old rotation", false, func(t *testing.T, s fixture) func() error {
		t.Helper()
		event := storetest.Rotation(s.asks, 2)
		return func() error { return second(s.RecordRotation(t.Context(), event, time.Now(), feed.History{})) }
	})
	add("see a rotation again", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		event := storetest.Rotation(s.asks, 2)
		must(t, second(s.RecordRotation(t.Context(), event, event.OccurredAt, feed.History{})))
		return func() error { return second(s.RecordRotation(t.Context(), event, event.OccurredAt, feed.History{})) }
	})
	test := func(s fixture) feed.Event {
		return feed.NewWebhookTest(s.asks.MerchantID, "Acme Coffee", "a trigger", storetest.RotatedAt)
	}
	add("record a test", false, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error { return second(s.RecordTest(t.Context(), test(s))) }
	})
	add("send a test", false, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error { return second(s.SendWebhookTest(t.Context(), test(s))) }
	})
	add("answer of a test", false, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, second(s.SendWebhookTest(t.Context(), test(s))))
		return func() error {
			return s.AnswerWebhookTest(t.Context(), test(s), "a target", outbox.Attempt{Reason: "timeout"})
		}
	})
	add("read attempts", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error { return second(s.Attempts(t.Context(), s.asks.MerchantID, time.Now())) }
	})
}

func fullEndpoints(add addFullCase) {
	failing := func(operation func(*testing.T, fixture, outbox.EndpointState) error) func(*testing.T, fixture) func() error {
		return func(t *testing.T, s fixture) func() error {
			t.Helper()
			s.fail(t, "a target", gone)
			state := s.state(t)
			return func() error { return operation(t, s, state) }
		}
	}
	refuse := func(t *testing.T, s fixture) error {
		t.Helper()
		recorded, err := s.RecordRefusal(t.Context(), s.asks.MerchantID, outbox.Target{ID: "another target"}, "URLRefused", "refused_scheme")
		if err == nil && !recorded {
			err = errors.New("it was not recorded")
		}
		return err
	}
	add("refuse an endpoint", true, failing(func(t *testing.T, s fixture, _ outbox.EndpointState) error {
		t.Helper()
		return refuse(t, s)
	}))
	add("refuse an endpoint before its first event", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error { return refuse(t, s) }
	})
	add("resume an endpoint", true, failing(func(t *testing.T, s fixture, _ outbox.EndpointState) error {
		t.Helper()
		return second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, outbox.Target{ID: "another target"}))
	}))
	add("note the target of an endpoint before its first event", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		return func() error {
			return second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, outbox.Target{ID: "a target"}))
		}
	})
	add("resume a disabled endpoint", true, failing(func(t *testing.T, s fixture, _ outbox.EndpointState) error {
		t.Helper()
		return second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, outbox.Target{ID: ""}))
	}))
	add("end a refusal", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		must(t, refuse(t, s))
		state := s.state(t)
		return func() error {
			return second(s.EndRefusal(t.Context(), state))
		}
	})
	add("report an endpoint", true, failing(func(t *testing.T, s fixture, state outbox.EndpointState) error {
		t.Helper()
		return s.RecordEndpointReport(t.Context(), state, "Disabled", false)
	}))
	add("report a healthy endpoint", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.deliver(t, "a target")
		state := s.state(t)
		return func() error { return s.RecordEndpointReport(t.Context(), state, "", true) }
	})
	add("stop watching an endpoint", true, func(t *testing.T, s fixture) func() error {
		t.Helper()
		s.deliver(t, "a target")
		state := s.state(t)
		return func() error { return s.UnwatchEndpoint(t.Context(), state) }
	})
	add("forget an endpoint", true, failing(func(t *testing.T, s fixture, _ outbox.EndpointState) error {
		t.Helper()
		return s.ForgetEndpoint(t.Context(), s.asks.MerchantID)
	}))
	add("read endpoints", true, failing(func(t *testing.T, s fixture, _ outbox.EndpointState) error {
		t.Helper()
		return second(s.WatchedEndpoints(t.Context(), session.MerchantBucket(s.asks.MerchantID)))
	}))
}
