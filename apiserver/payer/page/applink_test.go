package page

import (
	"bytes"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A scheme of browsers is no payment app.
func TestCheckScheme_Browsers(t *testing.T) {
	for _, scheme := range []string{"javascript", "JavaScript", "data", "vbscript", "file", "blob", "", "1pay", "pay:", "p ay"} {
		if CheckScheme(scheme) == nil {
			t.Errorf("%q is accepted", scheme)
		}
		payment := newPayment(session.Pending)
		payment.Payload = scheme + "://qr/" + payment.ID.String()
		if _, err := newPages(t).Payment("en", payment); err == nil {
			t.Errorf("%q is linked", payment.Payload)
		}
	}
	for _, scheme := range []string{"pay", "web+pay", "Acme.Pay-2", "https"} {
		if err := CheckScheme(scheme); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

func TestCheckAppURL(t *testing.T) {
	for _, template := range []string{
		"https://bank.example/{sessionId}", "https://bank.example/pay?session={sessionId}&from=page", "https://bank.example:8443/#{sessionId}",
		"http://127.0.0.1:8086/pay/{sessionId}", "http://[::1]/{sessionId}", "http://localhost/{sessionId}",
	} {
		if err := CheckAppURL(template); err != nil {
			t.Errorf("%s: %v", template, err)
		}
		payment := newPayment(session.Pending)
		payment.AppURL = strings.Replace(template, session.IDPlaceholder, payment.ID.String(), 1)
		rendered, err := newPages(t).Payment("en", payment)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		if got := links(parse(t, rendered))[0]; got != payment.AppURL {
			t.Errorf("the button leads to %s, want %s", got, payment.AppURL)
		}
		if code, err := NewCode(payment.Payload); err != nil || !bytes.Contains(rendered, []byte(code.Path)) {
			t.Errorf("%s: the QR code does not hold the payload: %v", template, err)
		}
	}
	for _, template := range []string{
		"", "{sessionId}", "https://bank.example/", "https://bank.example/{id}", "https://bank.example/{sessionId}/{sessionId}", "https://bank.example/{sessionId}}",
		"http://bank.example/{sessionId}", "http://127.0.0.1.bank.example/{sessionId}", "javascript:alert('{sessionId}')", "data:text/html,{sessionId}",
		"//bank.example/{sessionId}", "/pay/{sessionId}", "https:///{sessionId}", "https://{sessionId}.bank.example/", "https://{sessionId}/",
		"https://user@bank.example/{sessionId}", "https://bank.example\\@evil.example/{sessionId}", "https://bank.example/ {sessionId}", "https://bank.example/\n{sessionId}",
		"https://bänk.example/{sessionId}", "pay://qr/{sessionId}",
	} {
		if CheckAppURL(template) == nil {
			t.Errorf("%q is accepted", template)
		}
	}
}
