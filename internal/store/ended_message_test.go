package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// messagesDuring are the messages that scripts publish meanwhile: channel and text.
func messagesDuring(t *testing.T, server *redistest.Server, do func()) (messages []string) {
	t.Helper()
	for _, command := range storetest.Monitored(t, server, do) {
		if command.Lua && strings.HasSuffix(strings.ToLower(command.Words[0]), "publish") {
			messages = append(messages, command.Words[1]+" "+command.Words[2])
		}
	}
	return messages
}

// Whoever ends a session, or refuses its payment, says so once, and nobody else says anything: on one server and in a cluster.
func TestPublish_EndsAndRefusedPayments(t *testing.T) {
	single, cluster := redistest.Start(t), startCluster(t)
	slot := int(client(t, cluster[0]).ClusterKeySlot(t.Context(), storetest.TagOf(7)).Val())
	t.Run("one server", func(t *testing.T) { checkPublished(t, single.URL(), single) })
	t.Run("a cluster", func(t *testing.T) {
		checkPublished(t, "redis+cluster://"+cluster[0].Addr(), cluster[slot*3/slots])
	})
}

// checkPublished ends sessions of bucket 7, which is on the server.
func checkPublished(t *testing.T, url string, server *redistest.Server) {
	t.Helper()
	s, asks := open(t, url), merchantOf(7)
	settle := func(payment session.Payment) func(session.ID) {
		return func(id session.ID) { must(t, second(s.Settle(t.Context(), id, payment))) }
	}
	cancel := func(id session.ID) { _, _, err := s.Cancel(t.Context(), asks, id); must(t, err) }
	read := func(id session.ID) { _, _, err := s.Session(t.Context(), asks, id); must(t, err) }
	publicRead := func(id session.ID) { _, _, err := s.PublicSession(t.Context(), payer(), id); must(t, err) }
	watchedRead := func(id session.ID) { must(t, second(s.WatchedSession(t.Context(), id))) }
	sweep := func(session.ID) { sweepAll(t, s, 7, 10) }
	for end, do := range map[string]func(session.ID){"paid": settle(paid("a")), "failed": settle(failed("a")), "cancelled": cancel} {
		var id session.ID
		messages := messagesDuring(t, server, func() {
			id = mustCreate(t, s, asks, newSession()).Session.ID
			for _, each := range []func(session.ID){read, publicRead, watchedRead, do, do, read, publicRead, watchedRead, settle(paid("b"))} {
				each(id)
			}
		})
		message := "{b07n}:ended " + id.String() + " " + asks.MerchantID
		if want := []string{message, message}; !slices.Equal(messages, want) { // the end, and a late payment
			t.Errorf("%s: published %q, want %q", end, messages, want)
		}
	}
	for end, do := range map[string]func(session.ID){
		"read": read, "read publicly": publicRead, "watched": watchedRead, "paid too late": settle(paid("a")), "swept": sweep,
	} {
		created := mustCreate(t, s, asks, with(newSession(), short)).Session
		due(t, s, created)
		messages := messagesDuring(t, server, func() { do(created.ID); do(created.ID) })
		want := []string{"{b07n}:ended " + created.ID.String() + " " + asks.MerchantID}
		if end == "paid too late" {
			want = append(want, want[0])
		}
		if !slices.Equal(messages, want) {
			t.Errorf("expired, %s: published %q, want %q", end, messages, want)
		}
	}
}

// Who may not publish still settles: watchers only learn of it later.
func TestAnEndSucceedsWithoutTheRightToPublish(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	must(t, c.Do(t.Context(), "ACL", "SETUSER", "till", "on", ">secret", "~{b*", "+@all", "resetchannels").Err())
	s, asks := open(t, "redis://till:secret@"+server.Addr()), merchantOf(7)
	id := mustCreate(t, s, asks, newSession()).Session.ID
	settled, err := s.Settle(t.Context(), id, paid("a"))
	if err != nil || !settled.Applied {
		t.Errorf("settle: %+v, %v", settled, err)
	}
	if events := eventsOf(t, c, id); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}
