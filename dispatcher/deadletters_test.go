package dispatcher

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/deadletters"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// deadLetter makes a new event of the merchant a dead letter, as a dispatcher does, and returns its id.
func (f testFixture) deadLetter(t *testing.T, merchantID string) string {
	t.Helper()
	id := f.Event(t, merchantID)
	leased, err := f.Outbox.Lease(t.Context(), session.BucketOf(merchantID), outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	if err := f.Outbox.DeadLetter(t.Context(), leased.Leases[0], outbox.Details{Reason: "status_5xx", Answer: "503", Merchant: "shops/" + merchantID}); err != nil {
		t.Fatal(err)
	}
	return id
}

func (f testFixture) list(t *testing.T, options deadletters.ListOptions) string {
	t.Helper()
	options.RedisURL = f.Server.URL()
	options.Output = cmp.Or(options.Output, deadletters.OutputTable)
	var out strings.Builder
	if err := deadletters.List(t.Context(), options, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDeadLettersAreListed(t *testing.T) {
	f := newFixture(t)
	if got := f.list(t, deadletters.ListOptions{}); got != "FAILED AT  ID  KIND  MERCHANT  ATTEMPTS  LAST ANSWER  REASON\n" {
		t.Errorf("of none: %q", got)
	}
	if got := strings.TrimSpace(f.list(t, deadletters.ListOptions{Output: deadletters.OutputJSON})); got != "[]" {
		t.Errorf("of none, as JSON: %s", got)
	}
	acme, bagels := dispatchertest.NewMerchantID(7), dispatchertest.NewMerchantID(8)
	first, other := f.deadLetter(t, acme), f.deadLetter(t, bagels)

	table := f.list(t, deadletters.ListOptions{Output: deadletters.OutputTable})
	for _, word := range []string{first, other, "shops/" + acme, "shops/" + bagels, "session.cancelled", "503", "status_5xx"} {
		if !strings.Contains(table, word) {
			t.Errorf("the table has no %s:\n%s", word, table)
		}
	}
	for _, id := range []string{acme, "mer_" + acme, "shops/" + acme} {
		if of := f.list(t, deadletters.ListOptions{Merchant: id}); !strings.Contains(of, first) || strings.Contains(of, other) {
			t.Errorf("of %s:\n%s", id, of)
		}
	}
	var letters []map[string]any
	if err := json.Unmarshal([]byte(f.list(t, deadletters.ListOptions{Merchant: acme, Output: deadletters.OutputJSON})), &letters); err != nil || len(letters) != 1 {
		t.Fatalf("as JSON: %v, %v", letters, err)
	}
	if letters[0]["id"] != first || letters[0]["merchantId"] != "mer_"+acme || letters[0]["merchant"] != "shops/"+acme || letters[0]["reason"] != "status_5xx" || letters[0]["lastAnswer"] != "503" || letters[0]["sessionId"] == nil {
		t.Errorf("as JSON: %v", letters[0])
	}
	if got := strings.Count(f.list(t, deadletters.ListOptions{Limit: 1}), "\n"); got != 2 {
		t.Errorf("limited to one: %d lines", got)
	}
}

func TestDeadLettersAreSentAgain(t *testing.T) {
	f := newFixture(t)
	acme, bagels := dispatchertest.NewMerchantID(7), dispatchertest.NewMerchantID(8)
	resend := func(options deadletters.ResendOptions) (string, error) {
		options.RedisURL = f.Server.URL()
		var out strings.Builder
		err := deadletters.Resend(t.Context(), options, &out)
		return out.String(), err
	}
	for desc, options := range map[string]func() deadletters.ResendOptions{
		"by id": func() deadletters.ResendOptions {
			return deadletters.ResendOptions{IDs: []string{f.deadLetter(t, acme)}}
		},
		"of a merchant": func() deadletters.ResendOptions {
			f.deadLetter(t, acme)
			return deadletters.ResendOptions{Merchant: "mer_" + acme}
		},
	} {
		chosen := options()
		kept := f.deadLetter(t, bagels)
		out, err := resend(chosen)
		if err != nil || out != "dead letters queued for delivery: 1\n" {
			t.Errorf("%s: %q, %v", desc, out, err)
		}
		f.AwaitBacklog(t, 7, outbox.Backlog{Due: 1})
		if out, err := resend(deadletters.ResendOptions{All: true}); err != nil || !strings.HasSuffix(out, ": 1\n") {
			t.Errorf("all that is left, %s: %q, %v", kept, out, err)
		}
		for _, bucket := range []session.Bucket{7, 8} { // so that the next round begins with none
			leased, err := f.Outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Hour, Limit: 10})
			if err != nil || len(leased.Leases) != 1 || leased.Leases[0].Attempts != 0 {
				t.Fatalf("due: %+v, %v", leased, err)
			}
			if err := f.Outbox.Drop(t.Context(), leased.Leases[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := resend(deadletters.ResendOptions{IDs: []string{"evt_of_nobody"}}); err == nil || !strings.HasSuffix(out, ": 0\n") {
		t.Errorf("an id of no dead letter: %q, %v", out, err)
	}
}

// A disabled endpoint would make them dead letters again at once.
func TestDeadLettersOfADisabledEndpointAreSentOnlyIfItIsResumed(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return http.StatusGone
		}
		return http.StatusOK
	})
	acme, bagels := f.EndpointAt(shop.URL, 7), dispatchertest.NewMerchantID(7)
	first := f.Event(t, acme.MerchantID)
	start(t, f.dispatcher(t))
	f.reports.AwaitReasons(t, "EndpointGone")
	second := f.Event(t, acme.MerchantID) // is not tried
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	table := f.list(t, deadletters.ListOptions{})
	for _, row := range []string{first + `\s+session.cancelled\s+` + acme.Merchant.String() + `\s+1\s+410\s+gone`,
		second + `\s+session.cancelled\s+` + acme.Merchant.String() + `\s+0\s+410\s+endpoint_disabled`} {
		if !regexp.MustCompile(row).MatchString(table) {
			t.Errorf("no row %s in\n%s", row, table)
		}
	}
	f.deadLetter(t, bagels)

	var out strings.Builder
	err := deadletters.Resend(t.Context(), deadletters.ResendOptions{RedisURL: f.Server.URL(), All: true}, &out)
	if err == nil || out.String() != "dead letters queued for delivery: 1\n" { // the one of the other merchant
		t.Fatalf("without --resume: %q, %v", out.String(), err)
	}
	for _, word := range []string{"not sent: 2", acme.Merchant.String(), "disabled since 20", "410 Gone", "spec.webhook.resumeTrigger", "--resume"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %s", word, err)
		}
	}
	if n := len(f.DeadLetters(t)); n != 2 {
		t.Errorf("%d dead letters are left, want 2", n)
	}
	out.Reset()
	if err := deadletters.Resend(t.Context(), deadletters.ResendOptions{RedisURL: f.Server.URL(), IDs: []string{first, second}, Resume: true}, &out); err != nil || out.String() != "dead letters queued for delivery: 2\n" {
		t.Fatalf("with --resume: %q, %v", out.String(), err)
	}
	shop.await(t, 3)
	f.reports.AwaitLast(t, "Healthy")
}

func TestWhatIsAskedOfDeadLettersIsChecked(t *testing.T) {
	const url = "redis://127.0.0.1:1"
	for want, options := range map[string]interface{ Validate() error }{
		"--output must be table or json, not \"yaml\"": deadletters.ListOptions{RedisURL: url, Output: "yaml"},
		"--limit must be at least 1, or 0 for all":     deadletters.ListOptions{RedisURL: url, Output: deadletters.OutputTable, Limit: -1},
		"--merchant must be NAMESPACE/NAME":            deadletters.ListOptions{RedisURL: url, Output: deadletters.OutputTable, Merchant: "acme"},
		"set --redis-url or REDIS_URL":                 deadletters.ListOptions{Output: deadletters.OutputTable},
		"select dead letters by":                       deadletters.ResendOptions{RedisURL: url},
		"by event ids, by --merchant, or with --all":   deadletters.ResendOptions{RedisURL: url, All: true, IDs: []string{"evt_x"}},
		"not \"mer_acme\"":                             deadletters.ResendOptions{RedisURL: url, Merchant: "mer_acme"},
		"\"ps_1\" is not the id of an event":           deadletters.ResendOptions{RedisURL: url, IDs: []string{"ps_1"}},
		"or REDIS_URL":                                 deadletters.ResendOptions{All: true},
	} {
		if err := options.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", options, err, want)
		}
	}
}
