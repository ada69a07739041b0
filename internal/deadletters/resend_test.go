package deadletters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/deadletters"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func (f fixture) resend(t *testing.T, options deadletters.ResendOptions) (string, error) {
	t.Helper()
	options.RedisURL = f.url
	var out strings.Builder
	err := deadletters.Resend(t.Context(), options, &out)
	return out.String(), err
}

func TestResend(t *testing.T) {
	f := newFixture(t)
	acme, bagels := storetest.MerchantIn(7), storetest.MerchantIn(8)
	for desc, options := range map[string]func() deadletters.ResendOptions{
		"by id": func() deadletters.ResendOptions {
			return deadletters.ResendOptions{IDs: []string{f.deadLetter(t, acme)}}
		},
		"of a merchant": func() deadletters.ResendOptions {
			f.deadLetter(t, acme)
			return deadletters.ResendOptions{Merchant: "mer_" + acme.MerchantID}
		},
	} {
		chosen := options()
		kept := f.deadLetter(t, bagels)
		out, err := f.resend(t, chosen)
		if err != nil || out != "dead letters queued for delivery: 1\n" {
			t.Errorf("%s: %q, %v", desc, out, err)
		}
		if backlog, err := f.Backlog(t.Context(), 7); err != nil || backlog.Due != 1 || backlog.Dead != 0 {
			t.Errorf("%s: the backlog is %+v, %v", desc, backlog, err)
		}
		if out, err := f.resend(t, deadletters.ResendOptions{All: true}); err != nil || !strings.HasSuffix(out, ": 1\n") {
			t.Errorf("all that is left, %s: %q, %v", kept, out, err)
		}
		for _, bucket := range []session.Bucket{7, 8} { // so that the next round begins with none
			lease := f.lease(t, bucket)
			if lease.Attempts != 0 {
				t.Errorf("%s: %d attempts of an event with a new schedule", desc, lease.Attempts)
			}
			must(t, f.Drop(t.Context(), lease))
		}
	}
	if out, err := f.resend(t, deadletters.ResendOptions{IDs: []string{"evt_of_nobody"}}); err == nil || !strings.HasSuffix(out, ": 0\n") {
		t.Errorf("an id of no dead letter: %q, %v", out, err)
	}
}

// A disabled endpoint would make them dead letters again at once.
func TestResend_DisabledEndpoint(t *testing.T) {
	f := newFixture(t)
	acme, bagels := storetest.MerchantIn(7), storetest.MerchantIn(7)
	gone := outbox.Details{Reason: "gone", Answer: "410", Merchant: "shops/" + acme.MerchantID}
	lease := f.event(t, acme)
	failed, err := f.RecordFailure(t.Context(), lease, outbox.Failure{Details: gone, Gone: true, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour})
	if err != nil || !failed.Disabled {
		t.Fatalf("%+v, %v", failed, err)
	}
	ids := []string{lease.Event.ID, f.deadLetter(t, acme)}
	f.deadLetter(t, bagels)

	out, err := f.resend(t, deadletters.ResendOptions{All: true})
	if err == nil || out != "dead letters queued for delivery: 1\n" { // the one of the other merchant
		t.Fatalf("without --resume: %q, %v", out, err)
	}
	for _, word := range []string{"not sent: 2", gone.Merchant, "disabled since 20", "410 Gone", "spec.webhook.resumeTrigger", "--resume"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %s", word, err)
		}
	}
	if letters, err := f.DeadLetters(t.Context(), outbox.DeadLetterFilter{}); err != nil || len(letters) != 2 {
		t.Errorf("%d dead letters are left, want 2: %v", len(letters), err)
	}
	out, err = f.resend(t, deadletters.ResendOptions{IDs: ids, Resume: true})
	if err != nil || out != "dead letters queued for delivery: 2\n" {
		t.Fatalf("with --resume: %q, %v", out, err)
	}
	if found, err := f.Endpoints(t.Context(), 7, acme.MerchantID); err != nil || found.States[0].Disabled() {
		t.Errorf("the endpoint is %+v, %v", found, err)
	}
}

func TestResendOptions_Invalid(t *testing.T) {
	const url = "redis://127.0.0.1:1"
	for want, options := range map[string]deadletters.ResendOptions{
		"select dead letters by":                     {RedisURL: url},
		"by event ids, by --merchant, or with --all": {RedisURL: url, All: true, IDs: []string{"evt_x"}},
		"not \"mer_acme\"":                           {RedisURL: url, Merchant: "mer_acme"},
		"\"ps_1\" is not the id of an event":         {RedisURL: url, IDs: []string{"ps_1"}},
		"or REDIS_URL":                               {All: true},
	} {
		if err := options.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", options, err, want)
		}
	}
}
