package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/audittest"
)

// signingPath is what a ClusterRole names, as docs/rotation-api.md says.
const signingPath = "/internal/v1/merchants/{merchantID}/signing-secret"

// nonces are as random ones would be.
const (
	nonce      = "nonce-of-the-one-who-rotated"
	otherNonce = "nonce-of-somebody-else-entirely"
)

// webhookIssuer makes a service account that may read new signing secrets and returns a token of it.
func (f *fixture) webhookIssuer(name string) string {
	f.t.Helper()
	token := f.account(name)
	f.allow(name, signingPath, signingPath, "post")
	return token
}

// signingSecret publishes a signing secret that a trigger has made, as the operator does.
func (f *fixture) signingSecret(merchant published.MerchantRecord, change ...func(*published.WebhookRecord)) published.WebhookRecord {
	f.t.Helper()
	now := time.Now()
	record := published.WebhookRecord{
		Version: 1, MerchantID: merchant.MerchantID,
		Source:         published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(f.namespace + "/" + merchant.Name)},
		Current:        published.IssuedSecret{Secret: published.NewSigningSecret(), CreatedAt: now},
		Retired:        []published.RetiredSecret{{Secret: published.NewSigningSecret(), ValidUntil: now.Add(time.Hour).Truncate(time.Second)}},
		HandledTrigger: rotation.SigningTrigger(nonce),
	}
	for _, c := range change {
		c(&record)
	}
	secret, err := published.EncodeWebhook(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(f.namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return record
}

// showSecret asks for the signing secret of a merchant.
func (r *replica) showSecret(merchantID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, rotation.SigningPathFor(merchantID), token, body)
}

func (f *fixture) signingRequest(name, nonce string) string {
	return fmt.Sprintf(`{"namespace":"shops","name":%q,"uid":%q,"nonce":%q,"actor":"Ann <ann@shop.example>"}`, name, f.namespace+"/"+name, nonce)
}

// Who has rotated a signing secret reads it, and the audit log says who that was. Nothing of it is in a log or a cache.
func TestShowSigningSecret(t *testing.T) {
	f := newFixture(t)
	merchant := f.merchant("acme")
	record := f.signingSecret(merchant)
	console := f.webhookIssuer("console")
	got := f.start().showSecret(merchant.MerchantID, console, f.signingRequest("acme", nonce)).want(t, http.StatusOK)
	if got.text("secret") != record.Current.Secret.Reveal() || got.body["previousValidUntil"] != float64(record.Retired[0].ValidUntil.UnixMilli()) || len(got.body) != 2 {
		t.Error("the answer is not the secret of the merchant")
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}
	log := f.log.String()
	var about []audittest.Line
	for _, line := range audittest.Lines(t, log) {
		if line["change"] == "signing secret" {
			about = append(about, line)
		}
	}
	if len(about) != 1 || about[0]["by"] != "person" || about[0]["actor"] != "Ann <ann@shop.example>" || about[0]["merchantID"] != merchant.MerchantID ||
		about[0]["changedAt"] != record.Current.CreatedAt.UTC().Format(time.RFC3339Nano) {
		t.Errorf("the audit log has %v", about)
	}
	for _, secret := range []string{got.text("secret"), nonce, record.Retired[0].Secret.Reveal()} {
		if strings.Contains(log, secret) {
			t.Error("a secret is in the log")
		}
	}
}

// Everybody else gets the same 404, and no part of a secret.
func TestShowSigningSecret_Refused(t *testing.T) {
	f := newFixture(t)
	merchant, other := f.merchant("acme"), f.merchant("globex")
	old, restored, byHand, none := f.merchant("old"), f.merchant("restored"), f.merchant("by-hand"), f.merchant("none")
	f.signingSecret(merchant)
	f.signingSecret(other, func(r *published.WebhookRecord) { r.HandledTrigger = rotation.SigningTrigger(otherNonce) })
	f.signingSecret(old, func(r *published.WebhookRecord) { r.Current.CreatedAt = time.Now().Add(-2*time.Minute - time.Second) })
	f.signingSecret(restored, func(r *published.WebhookRecord) { r.Current.CreatedAt = time.Now().Add(time.Hour) })
	f.signingSecret(byHand, func(r *published.WebhookRecord) { r.HandledTrigger = otherNonce })
	console, rotator, rail := f.webhookIssuer("console"), f.issuer("rotator"), f.rail("bank")
	r := f.start()
	for name, test := range map[string]struct {
		got    result
		status int
		code   string
	}{
		"another nonce":                        {r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", otherNonce)), 404, "signing_secret_not_found"},
		"the trigger itself as the nonce":      {r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", rotation.SigningTrigger(nonce))), 404, "signing_secret_not_found"},
		"a trigger that is no digest":          {r.showSecret(byHand.MerchantID, console, f.signingRequest("by-hand", otherNonce)), 404, "signing_secret_not_found"},
		"another merchant's id":                {r.showSecret(other.MerchantID, console, f.signingRequest("acme", otherNonce)), 404, "signing_secret_not_found"},
		"another merchant's name":              {r.showSecret(merchant.MerchantID, console, f.signingRequest("globex", nonce)), 404, "signing_secret_not_found"},
		"more than two minutes ago":            {r.showSecret(old.MerchantID, console, f.signingRequest("old", nonce)), 404, "signing_secret_not_found"},
		"made in the future":                   {r.showSecret(restored.MerchantID, console, f.signingRequest("restored", nonce)), 404, "signing_secret_not_found"},
		"no webhook":                           {r.showSecret(none.MerchantID, console, f.signingRequest("none", nonce)), 404, "signing_secret_not_found"},
		"an unknown merchant":                  {r.showSecret("aaaaaaaaaaaa", console, f.signingRequest("acme", nonce)), 404, "signing_secret_not_found"},
		"a malformed id":                       {r.showSecret("ACME", console, `{}`), 404, "signing_secret_not_found"},
		"no nonce":                             {r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", "")), 400, "invalid_request"},
		"a short nonce":                        {r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", "2026-11-23")), 400, "invalid_request"},
		"an actor of two lines":                {r.showSecret(merchant.MerchantID, console, strings.Replace(f.signingRequest("acme", nonce), "Ann ", `Ann\n`, 1)), 400, "invalid_request"},
		"no fields":                            {r.showSecret(merchant.MerchantID, console, `{}`), 400, "invalid_request"},
		"no token":                             {r.showSecret(merchant.MerchantID, "", f.signingRequest("acme", nonce)), 401, ""},
		"a rail":                               {r.showSecret(merchant.MerchantID, rail, f.signingRequest("acme", nonce)), 403, "account_not_allowed"},
		"an account that may rotate keys only": {r.showSecret(merchant.MerchantID, rotator, f.signingRequest("acme", nonce)), 403, "account_not_allowed"},
	} {
		if code := test.got.want(t, test.status).header.Get("Error-Code"); code != test.code {
			t.Errorf("%s: Error-Code %q, want %q", name, code, test.code)
		}
		if strings.Contains(string(test.got.raw), "whsec_") {
			t.Errorf("%s: an answer has a secret", name)
		}
	}
	for _, line := range audittest.Lines(t, f.log.String()) {
		if line["change"] == "signing secret" {
			t.Errorf("the audit log has an entry of a secret that nobody saw: %v", line)
		}
	}
}

func TestShowSigningSecret_PlainHTTP(t *testing.T) {
	f := newFixture(t)
	merchant := f.merchant("acme")
	f.signingSecret(merchant)
	console := f.webhookIssuer("console")
	r := f.start(func(o *apiserver.Options) { o.InternalAddress = ":0" })
	got := r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", nonce)).want(t, http.StatusForbidden)
	if got.header.Get("Error-Code") != "tls_required" {
		t.Errorf("Error-Code %q", got.header.Get("Error-Code"))
	}
}

// Who waits for the operator asks often: the Kubernetes API is asked ten times a second for a merchant at most, for an unknown one never.
func TestShowSigningSecret_ReadsAreShared(t *testing.T) {
	f := newFixture(t)
	merchant := f.merchant("acme")
	console := f.webhookIssuer("console")
	reads := f.countReads("/secrets/webhook-")
	r := f.start()
	const requests = 30
	start := time.Now()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			for _, id := range []string{merchant.MerchantID, "aaaaaaaaaaaa"} {
				if got := r.showSecret(id, console, f.signingRequest("acme", nonce)); got.status != http.StatusNotFound {
					t.Errorf("%s: %d %s", id, got.status, got.raw)
				}
			}
		})
	}
	all.Wait()
	if most := int64(time.Since(start)/(100*time.Millisecond)) + 1; reads.Load() > most || reads.Load() == 0 {
		t.Errorf("%d reads for %d requests in %s, want at most %d", reads.Load(), 2*requests, time.Since(start), most)
	}
}
