package keys_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/test/audittest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

// nonces are as random ones would be.
const (
	nonce      = "nonce-of-the-one-who-rotated"
	otherNonce = "nonce-of-somebody-else-entirely"
)

// showSecret asks for the signing secret of a merchant.
func (f *fixture) showSecret(merchantID, body string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodPost, rotation.SigningPathFor(merchantID), console, body)
}

func signingRequest(name, nonce string) string {
	return fmt.Sprintf(`{"namespace":"shops","name":%[1]q,"uid":%[1]q,"nonce":%[2]q,"actor":"Ann <ann@shop.example>"}`, name, nonce)
}

// shown returns the entries of the audit log about signing secrets.
func (f *fixture) shown() (lines []audittest.Line) {
	f.t.Helper()
	for _, line := range audittest.Lines(f.t, f.Logged.String()) {
		if line["change"] == "signing secret" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Who has rotated a signing secret reads it, and the audit log says who that was. Nothing of it is in a log or a cache.
func TestShowSigningSecret(t *testing.T) {
	f := newFixture(t)
	merchant := f.merchant("acme")
	record := f.publishSecret(merchant)
	got := f.showSecret(merchant.MerchantID, signingRequest("acme", nonce)).Want(t, http.StatusOK)
	if got.Text("secret") != record.Current.Secret.Reveal() || got.Body["previousValidUntil"] != float64(record.Retired[0].ValidUntil.UnixMilli()) || len(got.Body) != 2 {
		t.Error("the answer is not the secret of the merchant")
	}
	if got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.Header.Get("Cache-Control"))
	}
	if about := f.shown(); len(about) != 1 || !about[0].Has(audittest.Line{
		"by": "person", "account": console, "actor": "Ann <ann@shop.example>", "merchantID": merchant.MerchantID,
		"changedAt": record.Current.CreatedAt.UTC().Format(time.RFC3339Nano),
	}) {
		t.Errorf("the audit log has %v", about)
	}
	for _, secret := range []string{got.Text("secret"), nonce, record.Retired[0].Secret.Reveal()} {
		if strings.Contains(f.Logged.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
}

// Everybody else gets the same 404, and no part of a secret.
func TestShowSigningSecret_Refused(t *testing.T) {
	f := newFixture(t)
	acme, other := f.merchant("acme"), f.merchant("globex")
	merchant := acme.MerchantID
	old, restored, byHand, none := f.merchant("old"), f.merchant("restored"), f.merchant("by-hand"), f.merchant("none")
	f.publishSecret(acme)
	f.publishSecret(other, func(r *published.WebhookRecord) { r.HandledTrigger = rotation.SigningTrigger(otherNonce) })
	f.publishSecret(old, func(r *published.WebhookRecord) { r.Current.CreatedAt = time.Now().Add(-2*time.Minute - time.Second) })
	f.publishSecret(restored, func(r *published.WebhookRecord) { r.Current.CreatedAt = time.Now().Add(time.Hour) })
	f.publishSecret(byHand, func(r *published.WebhookRecord) { r.HandledTrigger = otherNonce })
	valid := signingRequest("acme", nonce)
	for name, test := range map[string]struct {
		merchantID, body string
		status           int
		code             string
	}{
		"another nonce":                   {merchant, signingRequest("acme", otherNonce), 404, "signing_secret_not_found"},
		"the trigger itself as the nonce": {merchant, signingRequest("acme", rotation.SigningTrigger(nonce)), 404, "signing_secret_not_found"},
		"a trigger that is no digest":     {byHand.MerchantID, signingRequest("by-hand", otherNonce), 404, "signing_secret_not_found"},
		"another merchant's id":           {other.MerchantID, signingRequest("acme", otherNonce), 404, "signing_secret_not_found"},
		"another merchant's name":         {merchant, signingRequest("globex", nonce), 404, "signing_secret_not_found"},
		"more than two minutes ago":       {old.MerchantID, signingRequest("old", nonce), 404, "signing_secret_not_found"},
		"made in the future":              {restored.MerchantID, signingRequest("restored", nonce), 404, "signing_secret_not_found"},
		"no webhook":                      {none.MerchantID, signingRequest("none", nonce), 404, "signing_secret_not_found"},
		"an unknown merchant":             {unknownMerchant, valid, 404, "signing_secret_not_found"},
		"a malformed id":                  {"ACME", `{}`, 404, "signing_secret_not_found"},
		"no nonce":                        {merchant, signingRequest("acme", ""), 400, "invalid_request"},
		"a short nonce":                   {merchant, signingRequest("acme", "2026-11-23"), 400, "invalid_request"},
		"an actor of two lines":           {merchant, strings.Replace(valid, "Ann ", `Ann\n`, 1), 400, "invalid_request"},
		"no fields":                       {merchant, `{}`, 400, "invalid_request"},
	} {
		got := f.showSecret(test.merchantID, test.body)
		if code := got.Header.Get("Error-Code"); got.Status != test.status || code != test.code {
			t.Errorf("%s: %d, Error-Code %q, want %d, %q", name, got.Status, code, test.status, test.code)
		}
		if strings.Contains(string(got.Raw), "whsec_") {
			t.Errorf("%s: an answer has a secret", name)
		}
	}
	if about := f.shown(); len(about) > 0 {
		t.Errorf("the audit log has entries of secrets that nobody saw: %v", about)
	}
}

// Who waits for the operator asks often: the Kubernetes API is asked ten times a second for a
// merchant at most, for an unknown one never.
func TestShowSigningSecret_ReadsAreShared(t *testing.T) {
	f := newFixture(t)
	merchant := f.merchant("acme").MerchantID
	const requests = 30
	start := time.Now()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			for _, id := range []string{merchant, unknownMerchant} {
				if got := f.showSecret(id, signingRequest("acme", nonce)); got.Status != http.StatusNotFound {
					t.Errorf("%s: %d %s", id, got.Status, got.Raw)
				}
			}
		})
	}
	all.Wait()
	if n := f.unknown.Load(); n > 0 {
		t.Errorf("%d reads about an unknown merchant", n)
	}
	if most := int64(time.Since(start)/(100*time.Millisecond)) + 1; f.reads.Load() > most || f.reads.Load() == 0 {
		t.Errorf("%d reads for %d requests in %s, want at most %d", f.reads.Load(), 2*requests, time.Since(start), most)
	}
}
