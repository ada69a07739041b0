package delivery_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Either of the secrets of a rotation is enough to verify with; a third is not.
func TestAnyoneWithASecretCanVerify(t *testing.T) {
	r := receive(t, status(http.StatusNoContent))
	newer, older, foreign := published.NewSigningSecret(), published.NewSigningSecret(), published.NewSigningSecret()
	request := attempt(r.URL + "/hooks")
	request.Secrets = []published.SigningSecret{newer, older}
	send(t, r.trusting(), request)

	got := r.all()[0]
	for name, secret := range map[string]published.SigningSecret{"newer": newer, "older": older} {
		if err := verify(t, secret, got.body, got.header); err != nil {
			t.Errorf("with the %s secret: %v", name, err)
		}
		if err := verify(t, secret, append(got.body[:0:0], "{}"...), got.header); err == nil {
			t.Errorf("with the %s secret: a changed body is verified", name)
		}
	}
	if err := verify(t, foreign, got.body, got.header); err == nil {
		t.Error("verified with a secret that did not sign")
	}
	if signed := strings.Fields(got.header.Get("webhook-signature")); len(signed) != 2 {
		t.Errorf("signatures %q, want one for each secret", signed)
	}
}

func TestTheIDAndTheTimeAreSigned(t *testing.T) {
	r := receive(t, status(http.StatusNoContent))
	request := attempt(r.URL)
	send(t, r.trusting(), request)
	got := r.all()[0]
	for name, value := range map[string]string{
		"webhook-id": "evt_other", "webhook-timestamp": "1700000000",
	} {
		changed := got.header.Clone()
		changed.Set(name, value)
		webhook, err := standardwebhooks.NewWebhook(request.Secrets[0].Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if webhook.VerifyIgnoringTimestamp(got.body, changed) == nil {
			t.Errorf("verified with another %s", name)
		}
	}
}

// A receiver must recognize an event it has seen, and an old signature.
func TestLaterAttemptsDifferInTheirTimeOnly(t *testing.T) {
	r := receive(t, status(http.StatusInternalServerError))
	c := client(t, r.trusting())
	first := attempt(r.URL)
	second := first
	second.Now = first.Now.Add(5 * time.Second)
	c.Send(t.Context(), first)
	c.Send(t.Context(), second)

	got := r.all()
	if len(got) != 2 || !bytes.Equal(got[0].body, got[1].body) {
		t.Fatalf("bodies differ: %q", got)
	}
	if got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") {
		t.Error("ids differ")
	}
	if got[0].header.Get("webhook-timestamp") == got[1].header.Get("webhook-timestamp") {
		t.Error("both attempts carry the same time")
	}
	for _, attempt := range got {
		if err := verify(t, first.Secrets[0], attempt.body, attempt.header); err != nil {
			t.Error(err)
		}
	}
}

func verify(t testing.TB, secret published.SigningSecret, body []byte, header http.Header) error {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Verify(body, header)
}
