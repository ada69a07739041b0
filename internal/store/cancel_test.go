package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

func TestCancel(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	admitted, cancelled, err := s.Cancel(t.Context(), asks, created.ID)
	must(t, err)
	want := with(created, func(s *session.Session) {
		s.Status, s.EndedAt = session.Cancelled, admitted.Now.Truncate(time.Millisecond)
	})
	if diff := cmp.Diff(want, cancelled, sameSession); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
	if admitted.Policy != asks.Limit || admitted.Now.IsZero() {
		t.Errorf("admitted: %+v", admitted)
	}
	for name, read := range map[string]func() (admission.Admitted, session.Session, error){
		"cancelled again": func() (admission.Admitted, session.Session, error) { return s.Cancel(t.Context(), asks, created.ID) },
		"read":            func() (admission.Admitted, session.Session, error) { return s.Session(t.Context(), asks, created.ID) },
	} {
		_, got, err := read()
		if diff := cmp.Diff(want, got, sameSession); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	events := sessionEvents(t, client(t, shared), created.ID)
	if !slices.Equal(eventKinds(events), []v1alpha1.WebhookEvent{v1alpha1.EventSessionCancelled}) {
		t.Errorf("recorded %v", eventKinds(events))
	}
}

func TestCancel_EndedSession(t *testing.T) {
	s := open(t, shared.URL())
	for status, end := range map[session.Status]func(session.Session){
		session.Completed: func(c session.Session) { _, err := s.Settle(t.Context(), c.ID, paid("a")); must(t, err) },
		session.Failed:    func(c session.Session) { _, err := s.Settle(t.Context(), c.ID, failed("a")); must(t, err) },
		session.Expired:   func(c session.Session) { due(t, s, c) }, // and the wish to cancel is the first to find out
	} {
		asks := merchant()
		request := newSession()
		if status == session.Expired {
			request.Lifetime = 10 * time.Millisecond
		}
		created := mustCreate(t, s, asks, request).Session
		end(created)
		for range 2 {
			admitted, got, err := s.Cancel(t.Context(), asks, created.ID)
			if !errors.Is(err, store.ErrSessionEnded) || got.Status != status || admitted.Policy != asks.Limit {
				t.Errorf("%s: %+v, %s, %v; want ErrSessionEnded", status, admitted, got.Status, err)
			}
		}
		_, read, err := s.Session(t.Context(), asks, created.ID)
		if err != nil || read.Status != status {
			t.Errorf("%s: read as %s: %v", status, read.Status, err)
		}
		if events := sessionEvents(t, client(t, shared), created.ID); len(events) != 1 || events[0].Session.Status != status {
			t.Errorf("%s: recorded %v", status, eventKinds(events))
		}
	}
}

func TestCancel_NotFound(t *testing.T) {
	s := open(t, shared.URL())
	owner := merchant()
	neighbour := merchantIn(session.MerchantBucket(owner.MerchantID))
	stranger := merchantIn((session.MerchantBucket(owner.MerchantID) + 1) % session.Buckets)
	own := mustCreate(t, s, owner, newSession()).Session.ID
	for desc, test := range map[string]struct {
		asks admission.Request
		id   session.ID
	}{
		"of a merchant in the same bucket": {neighbour, own},
		"of a merchant in another bucket":  {stranger, own},
		"never made":                       {owner, session.NewID(own.MerchantID(), false)},
		"no id at all":                     {owner, session.ID{}},
	} {
		admitted, got, err := s.Cancel(t.Context(), test.asks, test.id)
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(got, session.Session{}, sameSession) || admitted.Now.IsZero() {
			t.Errorf("%s: %+v, %+v, %v; want ErrNotFound", desc, admitted, got, err)
		}
	}
	if _, read, err := s.Session(t.Context(), owner, own); err != nil || read.Status != session.Pending {
		t.Errorf("the session is %s: %v", read.Status, err)
	}
}
