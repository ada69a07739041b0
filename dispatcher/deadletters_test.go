package dispatcher

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// deadLetter makes a new event of the merchant a dead letter and returns its id.
func (f fixture) deadLetter(t *testing.T, merchantID string) string {
	t.Helper()
	id := f.event(t, merchantID)
	leased, err := f.outbox.Lease(t.Context(), session.BucketOf(merchantID), outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	if err := f.outbox.DeadLetter(t.Context(), leased.Leases[0], "status_5xx"); err != nil {
		t.Fatal(err)
	}
	return id
}

func (f fixture) list(t *testing.T, options ListOptions) string {
	t.Helper()
	options.RedisURL = f.server.URL()
	var out strings.Builder
	if err := ListDeadLetters(t.Context(), options, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDeadLettersAreListed(t *testing.T) {
	f := newFixture(t)
	if got := f.list(t, ListOptions{}); got != "FAILED AT  ID  KIND  MERCHANT  ATTEMPTS  REASON\n" {
		t.Errorf("of none: %q", got)
	}
	if got := strings.TrimSpace(f.list(t, ListOptions{Output: OutputJSON})); got != "[]" {
		t.Errorf("of none, as JSON: %s", got)
	}
	acme, bagels := newMerchantID(7), newMerchantID(8)
	first, other := f.deadLetter(t, acme), f.deadLetter(t, bagels)

	table := f.list(t, ListOptions{Output: OutputTable})
	for _, word := range []string{first, other, "mer_" + acme, "mer_" + bagels, "session.cancelled", "status_5xx"} {
		if !strings.Contains(table, word) {
			t.Errorf("the table has no %s:\n%s", word, table)
		}
	}
	for _, id := range []string{acme, "mer_" + acme} {
		if of := f.list(t, ListOptions{MerchantID: id}); !strings.Contains(of, first) || strings.Contains(of, other) {
			t.Errorf("of %s:\n%s", id, of)
		}
	}
	var letters []map[string]any
	if err := json.Unmarshal([]byte(f.list(t, ListOptions{MerchantID: acme, Output: OutputJSON})), &letters); err != nil || len(letters) != 1 {
		t.Fatalf("as JSON: %v, %v", letters, err)
	}
	if letters[0]["id"] != first || letters[0]["merchantId"] != "mer_"+acme || letters[0]["reason"] != "status_5xx" || letters[0]["sessionId"] == nil {
		t.Errorf("as JSON: %v", letters[0])
	}
	if got := strings.Count(f.list(t, ListOptions{Limit: 1}), "\n"); got != 2 {
		t.Errorf("limited to one: %d lines", got)
	}
}

func TestDeadLettersAreSentAgain(t *testing.T) {
	f := newFixture(t)
	acme, bagels := newMerchantID(7), newMerchantID(8)
	resend := func(options ResendOptions) (string, error) {
		options.RedisURL = f.server.URL()
		var out strings.Builder
		err := ResendDeadLetters(t.Context(), options, &out)
		return out.String(), err
	}
	for desc, options := range map[string]func() ResendOptions{
		"by id":         func() ResendOptions { return ResendOptions{IDs: []string{f.deadLetter(t, acme)}} },
		"of a merchant": func() ResendOptions { f.deadLetter(t, acme); return ResendOptions{MerchantID: "mer_" + acme} },
	} {
		chosen := options()
		kept := f.deadLetter(t, bagels)
		out, err := resend(chosen)
		if err != nil || out != "1 dead letters queued for delivery\n" {
			t.Errorf("%s: %q, %v", desc, out, err)
		}
		f.awaitBacklog(t, 7, outbox.Backlog{Due: 1})
		if out, err := resend(ResendOptions{All: true}); err != nil || !strings.HasPrefix(out, "1 ") {
			t.Errorf("all that is left, %s: %q, %v", kept, out, err)
		}
		for _, bucket := range []session.Bucket{7, 8} { // so that the next round begins with none
			leased, err := f.outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Hour, Limit: 10})
			if err != nil || len(leased.Leases) != 1 || leased.Leases[0].Attempts != 0 {
				t.Fatalf("due: %+v, %v", leased, err)
			}
			if err := f.outbox.Drop(t.Context(), leased.Leases[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := resend(ResendOptions{IDs: []string{"evt_of_nobody"}}); err == nil || !strings.HasPrefix(out, "0 ") {
		t.Errorf("an id of no dead letter: %q, %v", out, err)
	}
}

func TestWhatIsAskedOfDeadLettersIsChecked(t *testing.T) {
	f := newFixture(t)
	var out strings.Builder
	for desc, err := range map[string]error{
		"an unknown form":    ListDeadLetters(t.Context(), ListOptions{RedisURL: f.server.URL(), Output: "yaml"}, &out),
		"a negative limit":   ListDeadLetters(t.Context(), ListOptions{RedisURL: f.server.URL(), Limit: -1}, &out),
		"no merchant id":     ListDeadLetters(t.Context(), ListOptions{RedisURL: f.server.URL(), MerchantID: "acme"}, &out),
		"no Redis":           ListDeadLetters(t.Context(), ListOptions{}, &out),
		"nothing to resend":  ResendDeadLetters(t.Context(), ResendOptions{RedisURL: f.server.URL()}, &out),
		"two ways to choose": ResendDeadLetters(t.Context(), ResendOptions{RedisURL: f.server.URL(), All: true, IDs: []string{"evt_x"}}, &out),
	} {
		if err == nil {
			t.Errorf("%s: accepted", desc)
		}
	}
	if out.Len() != 0 {
		t.Errorf("wrote %q", out.String())
	}
}
