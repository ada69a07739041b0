package receipts

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const (
	customer = "ada@example.org"
	from     = "Example Pay <receipts@pay.example>"
	// patience bounds every wait for something that takes milliseconds on an idle machine.
	patience = 30 * time.Second
)

// fixture is a Redis with the sessions of one merchant.
type fixture struct {
	redis *redistest.Server
	*storetest.Services

	asks admission.Request
	log  logtest.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := redistest.Start(t)
	return &fixture{redis: server, Services: storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), asks: storetest.Merchant()}
}

var must = storetest.Must

// paid creates a session that is paid.
func (f *fixture) paid(t *testing.T, change ...func(*store.NewSession)) session.ID {
	t.Helper()
	request := storetest.NewSession()
	request.Charge.CustomerEmail, request.TimeZone = customer, "Etc/GMT-1"
	for _, c := range change {
		c(&request)
	}
	_, created, err := f.CreateSession(t.Context(), f.asks, request)
	must(t, err)
	id := created.Session.ID
	_, err = f.Settle(t.Context(), id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: request.Charge.AmountCents})
	must(t, err)
	return id
}

// reference is the one on the session's receipt.
func (f *fixture) reference(t *testing.T, id session.ID) string {
	t.Helper()
	story, err := f.ReadStory(t.Context(), id)
	must(t, err)
	reference, paid := story.Session.Reference()
	if !paid {
		t.Fatalf("%s is not paid", id)
	}
	return reference.String()
}

// sender returns one that does not run yet.
func (f *fixture) sender(t *testing.T, options ServerOptions) *Sender {
	t.Helper()
	options.From = cmp.Or(options.From, from)
	s, err := New(Options{
		Server: options, Store: f.Services.Receipts, Log: loop.NewLog(slog.New(slog.NewTextHandler(&f.log, nil))),
		Registerer: prometheus.NewRegistry(), ShutdownTimeout: patience,
	})
	must(t, err)
	s.pollInterval = 10 * time.Millisecond
	return s
}

// run runs a sender until the test ends, or stop is called.
func run(t *testing.T, s *Sender) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// waiting is how many receipts are listed.
func (f *fixture) waiting(t *testing.T) (all int64) {
	t.Helper()
	pending, err := f.Receipts.Pending(t.Context())
	must(t, err)
	for _, bucket := range pending {
		all += bucket.All
	}
	return all
}

// makeDue makes what waits for its next try due now.
func (f *fixture) makeDue(t *testing.T) {
	t.Helper()
	client := storetest.Inspect(t, f.redis)
	key := redis.BucketKeyspace(session.MerchantBucket(f.asks.MerchantID)).Key("receipts")
	for _, member := range client.ZRange(t.Context(), key, 0, -1).Val() {
		must(t, client.ZAddXX(t.Context(), key, goredis.Z{Score: 1, Member: member}).Err())
	}
}

func (s *Sender) count(t *testing.T, result string) float64 {
	t.Helper()
	return testutil.ToFloat64(s.metrics.attempts.WithLabelValues(result))
}

// failures counts tries that sent nothing.
func (s *Sender) failures(t *testing.T) (all float64) {
	t.Helper()
	for _, result := range results() {
		if result != resultSent {
			all += s.count(t, result)
		}
	}
	return all
}

func (s *Sender) outcomes(t *testing.T, outcome string) float64 {
	t.Helper()
	return testutil.ToFloat64(s.metrics.ended.WithLabelValues(outcome))
}

// startMail starts a mail server that is closed with the test.
func startMail(t *testing.T, options mailtest.Options) *mailtest.Server {
	t.Helper()
	server, err := mailtest.Start(options)
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// newCertificate is of example.com and 127.0.0.1. The file has its authority.
func newCertificate(t *testing.T) (config *tls.Config, file string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file = filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}, file
}

// A customer gets one mail of what was paid, by TLS, from a server that wants to know who sends.
func TestSender_Sends(t *testing.T) {
	certificate, authority := newCertificate(t)
	for name, test := range map[string]struct {
		scheme string
		server mailtest.Options
	}{
		"TLS":               {"smtps", mailtest.Options{TLS: certificate, Implicit: true}},
		"TLS, signed in":    {"smtps", mailtest.Options{TLS: certificate, Implicit: true, Username: "pay", Password: "secret"}},
		"STARTTLS":          {"smtp", mailtest.Options{TLS: certificate}},
		"STARTTLS, sign-in": {"smtp", mailtest.Options{TLS: certificate, Username: "pay", Password: "secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, mails := newFixture(t), startMail(t, test.server)
			_, port, err := net.SplitHostPort(mails.Address())
			must(t, err)
			s := f.sender(t, ServerOptions{
				URL: test.scheme + "://example.com:" + port, CAFile: authority, Username: test.server.Username, Password: test.server.Password,
			})
			s.server.dial = func(ctx context.Context, network, address string) (net.Conn, error) { // its name is resolved to us
				if want := "example.com.:" + port; address != want {
					t.Errorf("dials %s, want %s: the search list of a pod must not complete it", address, want)
				}
				return new(net.Dialer).DialContext(ctx, network, mails.Address())
			}
			id := f.paid(t, func(n *store.NewSession) {
				n.Charge.TaxCents, n.Charge.TipCents, n.Charge.Description = new(int64(200)), new(int64(100)), "2 flat whites"
			})
			run(t, s)
			await.Until(t, patience, "the receipt is sent", func() bool { return s.outcomes(t, outcomeSent) == 1 })
			message := mails.Messages()[0]
			if message.UTF8 {
				t.Error("the server is asked for SMTPUTF8, so the next one may refuse the mail")
			}
			if !message.Encrypted || message.To != customer || message.From != `"Example Pay" <receipts@pay.example>` || message.Subject != "Receipt from Acme Coffee" {
				t.Errorf("the mail is %+v", message)
			}
			for _, line := range []string{"Paid:      €12.50\n", "Tax:       €2.00\n", "Tip:       €1.00\n", "Order:     1001\n", "For:       2 flat whites\n", "Reference: " + f.reference(t, id) + "\n", " +01\n"} {
				if !strings.Contains(message.Text, line) {
					t.Errorf("the mail lacks %q:\n%s", line, message.Text)
				}
			}
			if got := message.Header.Get("Auto-Submitted"); got != "auto-generated" {
				t.Errorf("Auto-Submitted is %q", got)
			}
			if n := f.waiting(t); n != 0 || len(mails.Messages()) != 1 {
				t.Errorf("%d receipts wait, %d mails were sent", n, len(mails.Messages()))
			}
			if strings.Contains(f.log.String(), customer) {
				t.Errorf("the log has the address:\n%s", f.log.String())
			}
		})
	}
}

// No mail and no password goes to a server whose TLS is missing, or that somebody else answers for.
func TestSender_NeedsTLS(t *testing.T) {
	certificate, authority := newCertificate(t)
	for name, test := range map[string]struct {
		url, authority string
		server         mailtest.Options
	}{
		"no STARTTLS":       {"smtp://example.com:587", authority, mailtest.Options{}},
		"another name":      {"smtp://other.example:587", authority, mailtest.Options{TLS: certificate}},
		"unknown authority": {"smtps://example.com:465", "", mailtest.Options{TLS: certificate, Implicit: true}},
		"no TLS":            {"smtps://example.com:465", authority, mailtest.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			f, mails := newFixture(t), startMail(t, test.server)
			s := f.sender(t, ServerOptions{URL: test.url, CAFile: test.authority, Username: "pay", Password: "secret"})
			s.server.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, mails.Address())
			}
			f.paid(t)
			run(t, s)
			await.Until(t, patience, "a try fails", func() bool { return s.count(t, resultUnavailable) == 1 })
			if mails.Tries() != 0 || f.waiting(t) != 1 {
				t.Errorf("%d mails were started, %d receipts wait", mails.Tries(), f.waiting(t))
			}
		})
	}
}

// A mail server gets a certificate of another authority, and the platform replaces the file: no dispatcher must be started again.
func TestSender_RenewedAuthority(t *testing.T) {
	certificate, authority := newCertificate(t)
	renewed, err := os.ReadFile(authority)
	must(t, err)
	former, err := httpserver.TLS("", httpserver.Options{Registerer: prometheus.NewRegistry()})
	must(t, err)
	self, err := former.GetCertificate(nil)
	must(t, err)
	must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: self.Certificate[0]}), 0o600))

	f, mails := newFixture(t), startMail(t, mailtest.Options{TLS: certificate, Implicit: true})
	s := f.sender(t, ServerOptions{URL: "smtps://" + mails.Address(), CAFile: authority})
	f.paid(t)
	run(t, s)
	await.Until(t, patience, "a try fails", func() bool { return s.count(t, resultUnavailable) == 1 })
	must(t, os.WriteFile(authority, renewed, 0o600))
	await.Until(t, patience, "it is sent", func() bool {
		f.makeDue(t)
		return s.outcomes(t, outcomeSent) == 1
	})
}

// 5xx about a mail is permanent. 4xx, and what the server has against us, is tried again, with the same mail.
func TestSender_Refused(t *testing.T) {
	recipient := func(r func() error) mailtest.Options {
		return mailtest.Options{Recipient: func(string) error { return r() }}
	}
	sender := func(r func() error) mailtest.Options {
		return mailtest.Options{Sender: func(string) error { return r() }}
	}
	content := func(r func() error) mailtest.Options {
		return mailtest.Options{Content: func(mailtest.Message) error { return r() }}
	}
	none := smtp.NoEnhancedCode
	for name, test := range map[string]struct {
		at       func(refuse func() error) mailtest.Options
		code     int
		enhanced smtp.EnhancedCode
		text     string
		result   string
	}{
		"recipient":                          {recipient, 550, smtp.EnhancedCode{5, 1, 1}, "no such user", resultRefused},
		"recipient, for now":                 {recipient, 451, smtp.EnhancedCode{4, 1, 1}, "later", resultTemporary},
		"recipient, syntax":                  {recipient, 501, smtp.EnhancedCode{5, 1, 3}, "bad address syntax", resultRefused},
		"recipient, mailbox disabled":        {recipient, 550, smtp.EnhancedCode{5, 2, 1}, "disabled", resultRefused},
		"recipient, no route":                {recipient, 550, smtp.EnhancedCode{5, 4, 1}, "recipient address rejected: access denied", resultRefused},
		"recipient, domain takes no mail":    {recipient, 556, smtp.EnhancedCode{5, 1, 10}, "null MX", resultRefused},
		"recipient, no enhanced code":        {recipient, 550, none, "unrouteable address", resultRefused},
		"recipient, undefined enhanced code": {recipient, 550, smtp.EnhancedCode{5, 0, 0}, "mailbox unavailable", resultRefused},
		"recipient, mailbox full":            {recipient, 552, smtp.EnhancedCode{5, 2, 2}, "mailbox full", resultRefused},
		"recipient, mailbox moved":           {recipient, 551, smtp.EnhancedCode{5, 1, 6}, "moved", resultRefused},
		"content":                            {content, 554, smtp.EnhancedCode{5, 6, 0}, "malformed", resultRefused},
		"content, for now":                   {content, 452, smtp.EnhancedCode{4, 3, 1}, "disk full", resultTemporary},
		"sender":                             {sender, 553, smtp.EnhancedCode{5, 1, 1}, "no", resultSenderRefused},
		"sender, for now":                    {sender, 421, smtp.EnhancedCode{4, 3, 2}, "later", resultTemporary},

		"sender at RCPT, not signed in":       {recipient, 530, smtp.EnhancedCode{5, 7, 0}, "sign in first", resultSenderRefused},
		"sender at RCPT, no code, signed out": {recipient, 530, none, "sign in first", resultSenderRefused},
		"sender at RCPT, relay":               {recipient, 554, smtp.EnhancedCode{5, 7, 1}, "relay access denied", resultSenderRefused},
		"sender at RCPT, relay of Exchange":   {recipient, 550, smtp.EnhancedCode{5, 7, 54}, "unable to relay", resultSenderRefused},
		"sender at RCPT, relay of Exim":       {recipient, 550, none, "relay not permitted", resultSenderRefused},
		"sender at RCPT, relay of qmail":      {recipient, 553, none, "sorry, that domain isn't in my list (#5.7.1)", resultSenderRefused},
		"sender at RCPT, mailbox":             {recipient, 550, smtp.EnhancedCode{5, 1, 7}, "sender address rejected", resultSenderRefused},
		"sender at RCPT, domain":              {recipient, 550, smtp.EnhancedCode{5, 1, 8}, "domain of sender not found", resultSenderRefused},
		"sender at RCPT, bad sequence":        {recipient, 503, smtp.EnhancedCode{5, 5, 1}, "sender first", resultSenderRefused},
		"sender at RCPT, address in the text": {recipient, 550, none, "authentication required from 5.1.1.20", resultSenderRefused},
		"sender at DATA, not authenticated":   {content, 550, smtp.EnhancedCode{5, 7, 26}, "SPF and DKIM fail", resultSenderRefused},
		"sender at DATA, no enhanced code":    {content, 554, none, "transaction failed", resultSenderRefused},
		"sender at DATA, paused":              {content, 554, none, "Message rejected: Sending paused for this account.", resultSenderRefused},
		"sender at DATA, hourly quota":        {content, 550, none, "Domain pay.example has exceeded the max emails per hour", resultSenderRefused},
		"sender at RCPT, not verified":        {recipient, 554, none, "Email address is not verified", resultSenderRefused},
		"sender at RCPT, verify failed":       {recipient, 550, none, "Sender verify failed", resultSenderRefused},
		"sender at RCPT, blocklist":           {recipient, 550, none, "198.51.100.7 is in an RBL", resultSenderRefused},
		"sender at RCPT, limit":               {recipient, 550, none, "Daily user sending limit exceeded", resultSenderRefused},
		"sender at RCPT, HELO":                {recipient, 550, none, "Access denied - Invalid HELO name", resultSenderRefused},
		"sender at RCPT, undefined address":   {recipient, 550, smtp.EnhancedCode{5, 1, 0}, "Sender address rejected", resultSenderRefused},
		"sender at RCPT, daily quota":         {recipient, 550, smtp.EnhancedCode{5, 4, 5}, "Daily user sending quota exceeded", resultSenderRefused},
		"sender at DATA, daily quota":         {content, 550, smtp.EnhancedCode{5, 4, 5}, "Daily user sending quota exceeded", resultSenderRefused},
		"sender at RCPT, limit of Exchange":   {recipient, 550, smtp.EnhancedCode{5, 1, 90}, "you've reached your daily limit for message recipients", resultSenderRefused},
		"sender at DATA, limit of Exchange":   {content, 550, smtp.EnhancedCode{5, 1, 90}, "you've reached your daily limit for message recipients", resultSenderRefused},
		"sender at DATA, not its address":     {content, 554, smtp.EnhancedCode{5, 2, 252}, "SendAsDenied; pay@pay.example not allowed to send as receipts@pay.example", resultSenderRefused},
		"sender at DATA, quota of Exchange":   {content, 554, smtp.EnhancedCode{5, 2, 0}, "STOREDRV.Submission.Exception:SubmissionQuotaExceededException", resultSenderRefused},
		"sender at DATA, taken for spam":      {content, 550, smtp.EnhancedCode{5, 2, 0}, "STOREDRV.Submission.Exception:OutboundSpamException", resultSenderRefused},
		"sender at RCPT, no SMTPUTF8":         {recipient, 553, smtp.EnhancedCode{5, 6, 7}, "non-ASCII address not permitted", resultSenderRefused},
		"sender at RCPT, pod's name":          {recipient, 504, smtp.EnhancedCode{5, 5, 2}, "Helo command rejected: need fully-qualified hostname", resultSenderRefused},
		"sender at RCPT, routing loop":        {recipient, 554, smtp.EnhancedCode{5, 4, 6}, "routing loop detected", resultSenderRefused},
		"sender at DATA, server full":         {content, 552, smtp.EnhancedCode{5, 3, 4}, "too big", resultSenderRefused},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var accepts atomic.Bool
			mails := startMail(t, test.at(func() error {
				if accepts.Load() {
					return nil
				}
				return &smtp.SMTPError{Code: test.code, EnhancedCode: test.enhanced, Message: test.text + " <" + customer + ">"}
			}))
			s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
			f.paid(t)
			run(t, s)
			await.Until(t, patience, "a try fails", func() bool { return s.failures(t) == 1 })
			if s.count(t, test.result) != 1 {
				t.Fatalf("it is not counted as %s; the log:\n%s", test.result, f.log.String())
			}
			sentence := strings.NewReplacer("pay@pay.example", "…", "receipts@pay.example", "…").Replace(test.text) + " <…>"
			await.Until(t, patience, "the log has the server's sentence", func() bool { return strings.Contains(f.log.String(), sentence) })
			if test.result == resultRefused {
				await.Until(t, patience, "it is dropped", func() bool { return s.outcomes(t, outcomeRefused) == 1 })
				if f.waiting(t) != 0 || !strings.Contains(f.log.String(), "dropped a receipt that the mail server refuses") {
					t.Errorf("%d receipts wait; the log:\n%s", f.waiting(t), f.log.String())
				}
			} else {
				accepts.Store(true)
				await.Until(t, patience, "it is sent", func() bool {
					f.makeDue(t)
					return s.outcomes(t, outcomeSent) == 1
				})
			}
			if strings.Contains(f.log.String(), "ada@") {
				t.Errorf("the log has the address:\n%s", f.log.String())
			}
		})
	}
}

// A server that is down costs time only.
func TestSender_Unavailable(t *testing.T) {
	f, mails := newFixture(t), startMail(t, mailtest.Options{})
	s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	var up atomic.Bool
	s.server.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !up.Load() {
			return nil, errors.New("connection refused")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	f.paid(t)
	run(t, s)
	await.Until(t, patience, "a try fails", func() bool { return s.count(t, resultUnavailable) == 1 })
	up.Store(true)
	await.Until(t, patience, "it is sent", func() bool {
		f.makeDue(t)
		return s.outcomes(t, outcomeSent) == 1
	})
	if !strings.Contains(f.log.String(), "connection refused") {
		t.Errorf("the log does not say why:\n%s", f.log.String())
	}
}

// An answer without an end would be kept in memory as a whole, and with STARTTLS anybody on the way may give the first one.
func TestSender_LongAnswer(t *testing.T) {
	f := newFixture(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		if connection, err := listener.Accept(); err == nil {
			_, _ = connection.Write([]byte("220 " + strings.Repeat("x", 2*maxAnswers) + "\r\n"))
			_ = connection.Close()
		}
	}()
	s := f.sender(t, ServerOptions{URL: "smtp://" + listener.Addr().String()})
	f.paid(t)
	run(t, s)
	await.Until(t, patience, "the try fails", func() bool { return s.count(t, resultUnavailable) == 1 })
	await.Until(t, patience, "the log says why", func() bool { return strings.Contains(f.log.String(), errLongAnswer.Error()) })
	if n := f.waiting(t); n != 1 {
		t.Errorf("%d receipts wait, want 1", n)
	}
}

// A server is greeted with a name that it can look up, not with the name of a pod.
func TestSender_Helo(t *testing.T) {
	for name, test := range map[string]struct{ from, helo, want string }{
		"the sender's domain":              {"Example Pay <receipts@pay.example>", "", "pay.example"},
		"an international sender's domain": {"receipts@müller.example", "", "xn--mller-kva.example"},
		"a name of its own":                {"receipts@pay.example", "mail-1.pay.example", "mail-1.pay.example"},
		"an address":                       {"receipts@pay.example", "[192.0.2.1]", "[192.0.2.1]"},
		"an address of IPv6":               {"receipts@pay.example", "[IPv6:2001:db8::1]", "[IPv6:2001:db8::1]"},
	} {
		t.Run(name, func(t *testing.T) {
			f, mails := newFixture(t), startMail(t, mailtest.Options{})
			s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address(), From: test.from, Helo: test.helo})
			f.paid(t)
			run(t, s)
			await.Until(t, patience, "the receipt is sent", func() bool { return len(mails.Messages()) == 1 })
			if message := mails.Messages()[0]; message.Hello != test.want || message.UTF8 {
				t.Errorf("EHLO %s, want %s; SMTPUTF8 %t", message.Hello, test.want, message.UTF8)
			}
		})
	}
}

// After three days nobody tries any more. Until then every try is the same mail.
func TestSender_GivesUp(t *testing.T) {
	f := newFixture(t)
	var ids sync.Map
	mails := startMail(t, mailtest.Options{Content: func(m mailtest.Message) error {
		ids.Store(m.ID+m.Header.Get("Date"), true)
		return &smtp.SMTPError{Code: 451, Message: "later"}
	}})
	id := f.paid(t)
	s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	run(t, s)
	await.Until(t, patience, "three tries failed", func() bool {
		f.makeDue(t)
		return s.count(t, resultTemporary) >= 3
	})
	if s.outcomes(t, outcomeExpired) != 0 {
		t.Error("it was given up at once")
	}
	key := redis.BucketKeyspace(id.Bucket()).Key("session:", id.String())
	must(t, storetest.Inspect(t, f.redis).HSet(t.Context(), key, "e", time.Now().Add(-giveUpAfter).UnixMilli()).Err())
	await.Until(t, patience, "it is given up", func() bool {
		f.makeDue(t)
		return s.outcomes(t, outcomeExpired) == 1
	})
	var different []string
	ids.Range(func(id, _ any) bool {
		different = append(different, id.(string))
		return true
	})
	if len(different) != 2 { // the last has another time, which the test changed
		t.Errorf("the tries differ: %q", different)
	}
	if f.waiting(t) != 0 {
		t.Error("it is still listed")
	}
}

// A dispatcher that was killed leaves its receipts to the others when their leases end; meanwhile nobody sends them twice.
func TestSender_Killed(t *testing.T) {
	f := newFixture(t)
	mails := startMail(t, mailtest.Options{})
	id := f.paid(t)
	leased, err := f.Receipts.Lease(t.Context(), id.Bucket(), time.Hour, 1) // then it was killed
	must(t, err)
	s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	other := f.paid(t)
	run(t, s)
	await.Until(t, patience, "another receipt is sent", func() bool { return s.outcomes(t, outcomeSent) == 1 })
	if text := mails.Messages()[0].Text; !strings.Contains(text, f.reference(t, other)) {
		t.Errorf("the mail is of another session:\n%s", text)
	}
	f.makeDue(t) // the lease has ended
	await.Until(t, patience, "it is sent", func() bool { return s.outcomes(t, outcomeSent) == 2 })
	if err := f.Receipts.End(t.Context(), leased[0]); err == nil {
		t.Error("the killed one may still end it")
	}
}

// Two senders share the work: each customer gets one mail.
func TestSender_Two(t *testing.T) {
	f := newFixture(t)
	mails := startMail(t, mailtest.Options{})
	const receipts = 40
	for range receipts {
		f.paid(t)
	}
	for range 2 {
		run(t, f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()}))
	}
	await.Until(t, patience, "all are sent", func() bool { return f.waiting(t) == 0 })
	ids := map[string]bool{}
	for _, message := range mails.Messages() {
		ids[message.ID] = true
	}
	if len(ids) != receipts || len(mails.Messages()) != receipts {
		t.Errorf("%d mails with %d ids, want %d", len(mails.Messages()), len(ids), receipts)
	}
}

// A server that says nothing holds up its workers, and a stop ends them.
func TestSender_SilentServer(t *testing.T) {
	f := newFixture(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }() // nobody accepts
	s := f.sender(t, ServerOptions{URL: "smtp://" + listener.Addr().String()})
	s.shutdownTimeout = time.Millisecond
	for range 2 * workers {
		f.paid(t)
	}
	stop := run(t, s)
	await.Until(t, patience, "all workers try", func() bool { return len(s.free) == 0 })
	stop() // or the test takes half a minute more
	await.Until(t, patience, "they have ended", func() bool { return len(s.free) == workers })
	if n := f.waiting(t); n != 2*workers {
		t.Errorf("%d receipts wait, want %d", n, 2*workers)
	}
}

// What merchants and tills write stays in its place.
func TestNewMessage_Injection(t *testing.T) {
	f := newFixture(t)
	mails := startMail(t, mailtest.Options{})
	f.paid(t, func(n *store.NewSession) {
		n.MerchantName = "Acme\r\nBcc: eve@example.org\r\n\r\nPaid: nothing"
		n.Charge.OrderRef = "1\u2028Paid:      €0.00\n.\r\nQUIT"
		n.Charge.Description = n.Charge.OrderRef
	})
	run(t, f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()}))
	await.Until(t, patience, "it is sent", func() bool { return len(mails.Messages()) == 1 })
	message := mails.Messages()[0]
	if len(message.Recipients) != 1 || message.Header.Get("Bcc") != "" {
		t.Errorf("it goes to %q, with the header %v", message.Recipients, message.Header)
	}
	if strings.Count(message.Text, "\nPaid:") != 1 || message.Subject != "Receipt from Acme  Bcc: eve@example.org    Paid: nothing" {
		t.Errorf("%s\n%s", message.Subject, message.Text)
	}
}

// The domain of an address is in ASCII, so that every server takes it; letters before the at sign need SMTPUTF8.
func TestNewMessage_UnicodeAddress(t *testing.T) {
	for address, test := range map[string]struct {
		recipient string
		utf8      bool
	}{
		"ada@müller.example":    {"ada@xn--mller-kva.example", false},
		"ada@例え。中国":             {"ada@xn--r8jz45g.xn--fiqs8s", false},
		"jürgen@example.org":    {"jürgen@example.org", true},
		"jürgen@müller.example": {"jürgen@xn--mller-kva.example", true},
	} {
		t.Run(address, func(t *testing.T) {
			f := newFixture(t)
			mails := startMail(t, mailtest.Options{})
			f.paid(t, func(n *store.NewSession) { n.Charge.CustomerEmail = address })
			run(t, f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()}))
			await.Until(t, patience, "it is sent", func() bool { return len(mails.Messages()) == 1 })
			if message := mails.Messages()[0]; message.UTF8 != test.utf8 || !slices.Equal(message.Recipients, []string{test.recipient}) {
				t.Errorf("SMTPUTF8 %t, to %q", message.UTF8, message.Recipients)
			}
		})
	}
}

// What is no address gets no mail, although no API stores it.
func TestNewMessage_HostileAddress(t *testing.T) {
	f := newFixture(t)
	mails := startMail(t, mailtest.Options{})
	hostile := []string{
		"ada@example.org>\r\nRCPT TO:<eve@example.org", "ada@example.org, eve@example.org", "ada@example.org\r\nBcc: eve@example.org", "ada",
		"root@[10.0.0.5]", "ada@localhost", "ada%eve@example.org",
	}
	for _, address := range hostile {
		f.paid(t, func(n *store.NewSession) { n.Charge.CustomerEmail = address })
	}
	s := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	run(t, s)
	await.Until(t, patience, "all are dropped", func() bool { return s.outcomes(t, outcomeDropped) == float64(len(hostile)) })
	if mails.Tries() != 0 || f.waiting(t) != 0 || strings.Contains(f.log.String(), "@example.org") {
		t.Errorf("%d mails were started, %d receipts wait; the log:\n%s", mails.Tries(), f.waiting(t), f.log.String())
	}
}

// A name that cannot be outside the cluster, and an address, stay as they are.
func TestCompleteName(t *testing.T) {
	for host, want := range map[string]string{
		"mail.example.com": "mail.example.com.", "mail.example.com.": "mail.example.com.", "mail": "mail", "localhost": "localhost",
		"192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
	} {
		if got := completeName(host); got != want {
			t.Errorf("%s becomes %s, want %s", host, got, want)
		}
	}
}

// The time to the next try grows with the age, so that about thirty are made in three days.
func TestRetryDelay(t *testing.T) {
	tries := 0
	for age := time.Duration(0); age < giveUpAfter; age += retryDelay(age) {
		tries++
	}
	if tries < 20 || tries > 40 {
		t.Errorf("%d tries", tries)
	}
}

// A mail whose acceptance nobody heard of is sent again: the same one, by its Message-ID and to the byte.
func TestSender_AbortedAfterAcceptance(t *testing.T) {
	f := newFixture(t)
	arrived, proceed := make(chan struct{}, 2), make(chan struct{})
	mails := startMail(t, mailtest.Options{Content: func(mailtest.Message) error {
		arrived <- struct{}{}
		<-proceed
		return nil
	}})
	f.paid(t)
	first := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	first.shutdownTimeout = time.Millisecond
	stop := run(t, first)
	select {
	case <-arrived:
	case <-time.After(patience):
		close(proceed)
		t.Fatal("no mail arrived")
	}
	stop()
	close(proceed) // the server accepts it, and nobody is there to learn that
	await.Until(t, patience, "the mail is accepted", func() bool { return len(mails.Messages()) == 1 })
	if f.waiting(t) != 1 {
		t.Fatal("the aborted try ended the receipt")
	}
	f.makeDue(t) // its lease has ended
	run(t, f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()}))
	await.Until(t, patience, "it is sent again", func() bool { return f.waiting(t) == 0 })
	got := mails.Messages()
	if len(got) != 2 || got[0].ID != got[1].ID || got[0].Text != got[1].Text || got[0].Header.Get("Date") != got[1].Header.Get("Date") {
		t.Errorf("the mails are %+v", got)
	}
}

// In a Redis Cluster each bucket is asked on its own.
func TestSender_RedisCluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	f := &fixture{Services: storetest.OpenWith(t, "redis+cluster://"+servers[0].Addr()+"?addr="+servers[1].Addr(), store.Options{Receipts: true})}
	mails := startMail(t, mailtest.Options{})
	const receipts = 20
	for range receipts {
		asks, request := storetest.Merchant(), storetest.NewSession()
		request.Charge.CustomerEmail, request.TimeZone = customer, "Etc/GMT-1"
		_, created, err := f.CreateSession(t.Context(), asks, request)
		must(t, err)
		_, err = f.Settle(t.Context(), created.Session.ID, session.Payment{Ref: "a", Outcome: session.Completed, AmountCents: request.Charge.AmountCents})
		must(t, err)
	}
	sender := f.sender(t, ServerOptions{URL: "smtp://" + mails.Address()})
	run(t, sender)
	await.Until(t, patience, "all are sent", func() bool { return sender.outcomes(t, outcomeSent) == receipts })
	if n := f.waiting(t); n != 0 {
		t.Errorf("%d wait", n)
	}
}
