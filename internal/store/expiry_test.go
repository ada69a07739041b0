package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// due waits until a session's time is over by the clock of Redis.
func due(t *testing.T, s *services, created session.Session) {
	t.Helper()
	eventually(t, "the session's time is over", func() bool {
		now, err := s.Admit(t.Context(), merchant())
		if err != nil {
			t.Fatal(err)
		}
		return !now.Now.Before(created.ExpiresAt)
	})
}

// Whoever reads first: it is expired, since the moment it expired, and everyone after sees the same.
func TestASessionPastItsTimeIsExpiredForWhoeverReadsFirst(t *testing.T) {
	s := open(t, shared.URL())
	for _, first := range []string{"merchant", "payer", "replay"} {
		t.Run(first, func(t *testing.T) {
			asks := merchant()
			wanted := with(newSession(), func(n *store.NewSession) {
				n.Lifetime, n.Idempotency = 25*time.Millisecond, idempotencyKey(t, "order-1001")
			})
			want := mustCreate(t, s, asks, wanted).Session
			due(t, s, want)
			want.Status, want.EndedAt = session.Expired, want.ExpiresAt

			reads := map[string]func(){
				"merchant": func() {
					_, read, err := s.Session(t.Context(), asks, want.ID)
					if diff := cmp.Diff(want, read, sameSession); err != nil || diff != "" {
						t.Errorf("merchant's read: %v (-want +got):\n%s", err, diff)
					}
				},
				"payer": func() {
					_, read, err := s.PublicSession(t.Context(), payer(), want.ID)
					if err != nil || read.Status != session.Expired || !read.EndedAt.Equal(want.ExpiresAt) {
						t.Errorf("public read: %+v, %v", read, err)
					}
				},
				"replay": func() {
					again := mustCreate(t, s, asks, wanted)
					if diff := cmp.Diff(store.Created{Session: want, Replayed: true}, again, sameSession); diff != "" {
						t.Errorf("replay (-want +got):\n%s", diff)
					}
				},
			}
			reads[first]()
			// Written back, and not only told: the next program may look at the hash itself.
			c := client(t, shared)
			key := bucketTag(asks.MerchantID) + "session:" + want.ID.String()
			if status := c.HGet(t.Context(), key, "s").Val(); status != "EXPIRED" {
				t.Errorf("Redis holds %s", status)
			}
			// The record outlives its expiry.
			if left := c.PTTL(t.Context(), key).Val(); left < 71*time.Hour {
				t.Errorf("the session is kept for another %s only", left)
			}
			for _, read := range reads {
				read()
			}
			// Told once, however many looked, and of the moment it expired.
			wantEvent := feed.Event{
				ID: feed.SessionEventID(want.ID, feed.MarkEnded), Kind: v1alpha1.EventSessionExpired, OccurredAt: want.ExpiresAt,
				MerchantID: asks.MerchantID, MerchantName: want.MerchantName, Session: &feed.SessionChange{Session: want, Sequence: 1},
			}
			if diff := cmp.Diff([]feed.Event{wantEvent}, eventsOf(t, c, want.ID), sameSession); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASessionIsPendingUntilItsTimeIsOver(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Lifetime = 40 * time.Millisecond })
	id := mustCreate(t, s, asks, wanted).Session.ID
	eventually(t, "the session expires", func() bool {
		admitted, read, err := s.Session(t.Context(), asks, id)
		if err != nil {
			t.Fatal(err)
		}
		// The very same script read the clock and the session, so this is exact.
		if expired := !admitted.Now.Before(read.ExpiresAt); expired != (read.Status == session.Expired) {
			t.Fatalf("%s at %s, expires at %s", read.Status, admitted.Now, read.ExpiresAt)
		}
		return read.Status == session.Expired
	})
}

func TestFinalStatesDoNotExpire(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	for _, status := range []session.Status{session.Completed, session.Failed, session.Cancelled} {
		asks := merchant()
		created := mustCreate(t, s, asks, with(newSession(), func(n *store.NewSession) { n.Lifetime = 10 * time.Millisecond })).Session
		ended := created.CreatedAt.Add(3 * time.Millisecond)
		key := bucketTag(asks.MerchantID) + "session:" + created.ID.String()
		if err := c.HSet(t.Context(), key, "s", string(status), "e", ended.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		due(t, s, created)
		_, read, err := s.Session(t.Context(), asks, created.ID)
		if err != nil || read.Status != status || !read.EndedAt.Equal(ended) {
			t.Errorf("%s: read as %s, ended at %s: %v", status, read.Status, read.EndedAt, err)
		}
		_, public, err := s.PublicSession(t.Context(), payer(), created.ID)
		if err != nil || public.Status != status {
			t.Errorf("%s: publicly read as %s: %v", status, public.Status, err)
		}
	}
}
