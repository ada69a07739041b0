package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// What the server refuses is nobody's fault: nothing changes, and the next try succeeds.
func TestEndsThatTheServerRefusesChangeNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := impatient(t, server.URL()), client(t, server)
	pending := mustCreate(t, s, merchantOf(7), newSession()).Session
	asks := merchantOf(7)
	expiring := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, expiring)
	waiting := func() float64 { return c.ZScore(t.Context(), "{b07n}:expiry", "10").Val() }
	before := waiting()
	refused := func(why string) {
		t.Helper()
		if got, err := s.Settle(t.Context(), pending.ID, paid("a")); !errors.Is(err, redis.ErrUnavailable) || got.Applied {
			t.Errorf("%s: settle: %+v, %v; want ErrUnavailable", why, got, err)
		}
		if swept, err := sweep(t.Context(), s.Store, 7, 10); !errors.Is(err, redis.ErrUnavailable) || swept != (store.Swept{}) {
			t.Errorf("%s: sweep: %+v, %v; want ErrUnavailable", why, swept, err)
		}
	}
	for desc, commands := range map[string][2]string{
		"out of memory":        {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"a replica is missing": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		"a right is missing":   {"ACL SETUSER default -hset", "ACL SETUSER default +hset"},
	} {
		send := func(command string) {
			var words []any
			for word := range strings.FieldsSeq(command) {
				words = append(words, word)
			}
			must(t, c.Do(t.Context(), words...).Err())
		}
		send(commands[0])
		refused(desc)
		send(commands[1])
	}
	if events := len(eventsOf(t, c, pending.ID)) + len(eventsOf(t, c, expiring.ID)); events != 0 || waiting() != before {
		t.Errorf("%d events, and the session is due at %.0f, was at %.0f", events, waiting(), before)
	}
	server.Pause()
	refused("no answer")
	server.Resume()

	// What waited in the socket may have been done or not; done once more, it has been done once.
	patient := open(t, server.URL())
	if settled, err := patient.Settle(t.Context(), pending.ID, paid("a")); err != nil || !settled.Applied {
		t.Errorf("afterwards: %+v, %v", settled, err)
	}
	sweepAll(t, patient, 7, 10)
	for id, want := range map[session.ID]session.Status{pending.ID: session.Completed, expiring.ID: session.Expired} {
		if events := eventsOf(t, c, id); len(events) != 1 || events[0].Session.Status != want {
			t.Errorf("recorded %v, want that it is %s", kindsOf(events), want)
		}
	}
}

// Where one session has a wrong key beside it, nothing of it may be half done.
func TestAnEndThatCannotBeRecordedDoesNotHappen(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	event := bucketTag(asks.MerchantID) + "event:" + feed.SessionEventID(created.ID, feed.MarkEnded)
	must(t, c.Set(t.Context(), event, "text", 0).Err())
	for desc, end := range map[string]func() error{
		"cancel": func() error { _, _, err := s.Cancel(t.Context(), asks, created.ID); return err },
		"settle": func() error { _, err := s.Settle(t.Context(), created.ID, paid("a")); return err },
	} {
		if err := end(); !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", desc, err)
		}
		if _, read, err := s.Session(t.Context(), asks, created.ID); err != nil || read.Status != session.Pending {
			t.Errorf("%s: it is %s: %v", desc, read.Status, err)
		}
	}
	must(t, c.Del(t.Context(), event).Err())
	if _, _, err := s.Cancel(t.Context(), asks, created.ID); err != nil {
		t.Errorf("mended: %v", err)
	}
}

func TestWhatNobodyWouldWriteIsNotSettled(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for desc, harm := range map[string][2]string{
		"an unknown status":                 {"s", "PAID"},
		"a status that is a pattern":        {"s", "%"},
		"an end although it is pending":     {"e", "1"},
		"no amount":                         {"f", "-"},
		"a final status without its end":    {"s", "FAILED"},
		"a record of a refund that is none": {"l:" + bank.Scope("a"), "garbage"},
	} {
		asks := merchant()
		id := mustCreate(t, s, asks, newSession()).Session.ID
		key := bucketTag(asks.MerchantID) + "session:" + id.String()
		if harm[0] == "f" {
			harm[1] = asks.MerchantID + "\t" + harm[1]
		}
		must(t, c.HSet(t.Context(), key, harm[0], harm[1]).Err())
		if got, err := s.Settle(t.Context(), id, failed("a")); !errors.Is(err, redis.ErrCorrupt) || got.Applied {
			t.Errorf("%s: settle: %+v, %v; want ErrCorrupt", desc, got, err)
		}
		if harm[0] == "s" || harm[0] == "e" {
			if _, got, err := s.Cancel(t.Context(), asks, id); !errors.Is(err, redis.ErrCorrupt) || got.Status != "" {
				t.Errorf("%s: cancel: %s, %v; want ErrCorrupt", desc, got.Status, err)
			}
		}
		if events := eventsOf(t, c, id); len(events) != 0 {
			t.Errorf("%s: recorded %v", desc, kindsOf(events))
		}
	}
}
