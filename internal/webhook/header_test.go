package webhook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/webhook"
)

const id = "evt_abcdefgh2345T2xV9bLrYc8WdNeHq7_ended"

func verify(t *testing.T, secret published.SigningSecret, body []byte, header http.Header) error {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return verifier.Verify(body, header)
}

// Each of the secrets of a rotation is enough to verify with; a third is not.
func TestHeader_VerifiesWithEachSecret(t *testing.T) {
	newer, older := published.NewSigningSecret(), published.NewSigningSecret()
	body := []byte(`{"type":"session.completed"}`)
	header := webhook.Header(id, time.Now(), body, newer, older)
	for name, secret := range map[string]published.SigningSecret{"newer": newer, "older": older} {
		if err := verify(t, secret, body, header); err != nil {
			t.Errorf("with the %s secret: %v", name, err)
		}
	}
	if verify(t, published.NewSigningSecret(), body, header) == nil {
		t.Error("verified with a secret that did not sign")
	}
	if verify(t, newer, []byte("{}"), header) == nil {
		t.Error("a changed body is verified")
	}
	if signed := strings.Fields(header.Get("webhook-signature")); len(signed) != 2 {
		t.Errorf("signatures %q, want one for each secret", signed)
	}
}

// Anybody could sign with an empty key.
func TestHeader_WithoutASecret(t *testing.T) {
	if header := webhook.Header(id, time.Now(), []byte("{}"), published.SigningSecret{}); header != nil {
		t.Errorf("got %v", header)
	}
}
