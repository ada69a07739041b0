package receipts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wneessen/go-mail/smtp"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
)

// A mechanism that the server offers and does not have costs one refusal, and no receipt.
func TestSignIn(t *testing.T) {
	certificate, authority := newCertificate(t)
	for name, test := range map[string]struct {
		offers, has string
		// first are the mechanisms that the first receipt tries, second the one of the next receipt.
		first, second string
	}{
		"PLAIN":                        {"PLAIN", "PLAIN", "PLAIN", "PLAIN"},
		"LOGIN":                        {"LOGIN", "LOGIN", "LOGIN", "LOGIN"},
		"LOGIN beside XOAUTH2":         {"XOAUTH2 LOGIN", "LOGIN", "LOGIN", "LOGIN"},
		"saslauthd":                    {"DIGEST-MD5 CRAM-MD5 LOGIN PLAIN", "LOGIN PLAIN", "CRAM-MD5 PLAIN", "PLAIN"},
		"saslauthd with SCRAM":         {"SCRAM-SHA-256 SCRAM-SHA-1 PLAIN LOGIN", "PLAIN LOGIN", "SCRAM-SHA-256 SCRAM-SHA-1 PLAIN", "PLAIN"},
		"SCRAM with a channel":         {"SCRAM-SHA-256-PLUS PLAIN", "PLAIN", "SCRAM-SHA-256-PLUS PLAIN", "PLAIN"},
		"PLAIN is offered only":        {"PLAIN LOGIN", "LOGIN", "PLAIN LOGIN", "LOGIN"},
		"NTLM is offered only":         {"NTLM LOGIN", "LOGIN", "NTLM LOGIN", "LOGIN"},
		"the weakest is the only real": {"NTLM CRAM-MD5 SCRAM-SHA-1 PLAIN LOGIN", "LOGIN", "SCRAM-SHA-1 NTLM CRAM-MD5 PLAIN LOGIN", "LOGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			mails := startMail(t, mailtest.Options{
				TLS: certificate, Implicit: true, Username: "pay", Password: "secret", Offers: strings.Fields(test.offers), Has: strings.Fields(test.has),
			})
			s := f.sender(t, ServerOptions{URL: "smtps://" + mails.Address(), CAFile: authority, Username: "pay", Password: "secret"})
			run(t, s)
			for receipts := range 2 {
				f.paid(t)
				await.Until(t, patience, "the receipt is sent", func() bool { return len(mails.Messages()) == receipts+1 })
			}
			if tried := mails.SignIns(); !slices.Equal(tried, append(strings.Fields(test.first), test.second)) {
				t.Errorf("tried %q, want %s and then %s", tried, test.first, test.second)
			}
			if n := s.failures(t); n != 0 {
				t.Errorf("%v tries failed", n)
			}
		})
	}
}

// A wrong password is no reason to drop anybody's receipt. The log has the server's word for it.
func TestSignIn_Refused(t *testing.T) {
	certificate, authority := newCertificate(t)
	for name, test := range map[string]struct {
		offers, tried, result, reason string
	}{
		"a wrong password":          {"CRAM-MD5 PLAIN LOGIN", "CRAM-MD5 PLAIN LOGIN", resultSenderRefused, "Authentication failed"},
		"no mechanism that we have": {"XOAUTH2 GSSAPI", "", resultUnavailable, "the mail server offers no way to sign in"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			mails := startMail(t, mailtest.Options{
				TLS: certificate, Implicit: true, Username: "pay", Password: "secret", Offers: strings.Fields(test.offers), Has: []string{"PLAIN", "LOGIN"},
			})
			s := f.sender(t, ServerOptions{URL: "smtps://" + mails.Address(), CAFile: authority, Username: "pay", Password: "wrong-password"})
			f.paid(t)
			run(t, s)
			await.Until(t, patience, "the sign-in is refused", func() bool { return s.count(t, test.result) == 1 })
			if tried := mails.SignIns(); !slices.Equal(tried, strings.Fields(test.tried)) {
				t.Errorf("tried %q, want %q", tried, test.tried)
			}
			await.Until(t, patience, "the log says why", func() bool { return strings.Contains(f.log.String(), test.reason) })
			if f.waiting(t) != 1 || strings.Contains(f.log.String(), "wrong-password") {
				t.Errorf("%d receipts wait; the log:\n%s", f.waiting(t), f.log.String())
			}
		})
	}
}

// Without TLS, on a loopback address, nobody hears the password.
func TestSignIn_WithoutTLS(t *testing.T) {
	f := newFixture(t)
	mails := startMail(t, mailtest.Options{Username: "pay", Password: "secret", Offers: []string{"PLAIN", "LOGIN"}})
	s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address(), Username: "pay", Password: "secret"})
	f.paid(t)
	run(t, s)
	await.Until(t, patience, "the try fails", func() bool { return s.count(t, resultUnavailable) == 1 })
	if tried := mails.SignIns(); len(tried) != 0 {
		t.Errorf("tried %q", tried)
	}
}

// A server does not decide how long a processor is busy.
func TestSignIn_Iterations(t *testing.T) {
	for _, test := range []struct {
		asked string
		want  error
	}{
		{"4096", nil},
		{"2000000000", errIterations},
		{"+2000000000", errIterations},
		{"2000000000,i=1", errIterations},
	} {
		auth := boundedAuth{smtp.ScramSHA256Auth("pay", "secret")}
		first, err := auth.Next(nil, true)
		must(t, err)
		_, nonce, _ := strings.Cut(string(first), ",r=")
		if _, err := auth.Next([]byte("r="+nonce+"theirs,s=c2FsdA==,i="+test.asked), true); !errors.Is(err, test.want) {
			t.Errorf("asked for %s iterations: %v, want %v", test.asked, err, test.want)
		}
	}
}
