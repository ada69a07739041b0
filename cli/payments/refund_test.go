package payments

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// fakeRefunds is an API that is asked for refunds of one session.
type fakeRefunds struct {
	mu      sync.Mutex
	answers []http.HandlerFunc // to the next requests for a refund; then refunded
	asked   []string           // idempotency key and body of each
}

const refunded = `{"sessionId":"` + paidSession + `","refundId":"rf_0123456789abcdef01234567","status":"REQUESTED","amountCents":500,"requestedAt":1795246400000,"currency":"EUR","idempotent":false}`

const paidSession = "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"

func newFakeRefunds(t *testing.T, answers ...http.HandlerFunc) *fakeRefunds {
	t.Helper()
	f := &fakeRefunds{answers: answers}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Setenv("API_URL", server.URL)
	t.Setenv("API_KEY", fakeKey)
	return f
}

func (f *fakeRefunds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET " + fixture.Me:
		_, _ = io.WriteString(w, `{"livemode":true,"merchant":{"id":"mer_abcdefgh2345","name":"Acme","timeZone":"UTC"}}`)
	case "GET " + sessionsPath + "/" + paidSession:
		_, _ = io.WriteString(w, `{"sessionId":"`+paidSession+`","status":"COMPLETED","amountCents":1250,"currency":"EUR"}`)
	case "POST " + sessionsPath + "/" + paidSession + "/refunds":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		f.asked = append(f.asked, r.Header.Get("Idempotency-Key")+" "+string(body))
		answer := failing(http.StatusCreated, refunded)
		if len(f.answers) > 0 {
			answer, f.answers = f.answers[0], f.answers[1:]
		}
		answer(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// wantAsked: these requests for a refund have reached the API.
func (f *fakeRefunds) wantAsked(t *testing.T, asked ...string) {
	t.Helper()
	if diff := cmp.Diff(asked, f.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPaymentsRefund(t *testing.T) {
	f := newFakeRefunds(t)
	got := run(t, "payments refund "+paidSession+" --key-env --amount 5 --reason cold --idempotency-key return-1").want(t, terminal.ExitDone)
	f.wantAsked(t, `return-1 {"amountCents":500,"reason":"cold"}`)
	if diff := cmp.Diff("Refund   rf_0123456789abcdef01234567\nStatus   REQUESTED\nAmount   5.00 EUR\n", got.out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := run(t, "payments refund "+paidSession+" --key-env -o json --idempotency-key return-1"); !strings.Contains(got.out, `"status": "REQUESTED"`) {
		t.Errorf("it prints %s", got.out)
	}
	f.wantAsked(t, `return-1 {"amountCents":500,"reason":"cold"}`, "return-1 {}")
}

// An answer that is lost makes no second refund: neither the repetition of the request, nor that of the command, which says how.
func TestPaymentsRefund_AnswerLost(t *testing.T) {
	f := newFakeRefunds(t, abort, failing(http.StatusServiceUnavailable, `{"error":"unknown"}`, "Retry-After", "1", "Error-Code", "refund_unknown"))
	got := run(t, "payments refund "+paidSession+" --key-env").want(t, terminal.ExitDone, "REQUESTED")
	key := regexp.MustCompile(`Idempotency-Key: (kubectl-\w{26})\n`).FindStringSubmatch(got.problems)
	if key == nil {
		t.Fatalf("it does not print its key: %s", got.problems)
	}
	f.wantAsked(t, key[1]+" {}", key[1]+" {}", key[1]+" {}")
	if other := run(t, "payments refund "+paidSession+" --key-env"); other.problems == got.problems {
		t.Error("another refund has the same key")
	}
}

// What the API refuses is explained, and the key of the merchant is printed nowhere.
func TestPaymentsRefund_Refused(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		code, says string
	}{
		"permission": {http.StatusForbidden, "permission_missing", "keys issue NAME --merchant MERCHANT --permissions read,refund"},
		"conflict":   {http.StatusConflict, "refund_conflict", "another --idempotency-key"},
		"too much":   {http.StatusConflict, "refund_exceeds_payment", "payments show " + paidSession},
		"not paid":   {http.StatusConflict, "session_not_completed", "payments show " + paidSession},
		"gone":       {http.StatusNotFound, "session_not_found", "Acme has no session " + paidSession},
		"suspended":  {http.StatusForbidden, "merchant_not_active", "the shop is"},
	} {
		t.Run(name, func(t *testing.T) {
			newFakeRefunds(t, failing(test.status, `{"error":"the shop is \u001b]52;c;x\u0007 closed"}`, "Error-Code", test.code))
			got := run(t, "payments refund "+paidSession+" --key-env").want(t, terminal.ExitError, test.says)
			if text := got.out + got.problems; strings.Contains(text, fakeKey) || strings.ContainsAny(text, "\x1b\x07") {
				t.Errorf("it prints %q", text)
			}
		})
	}
	for flags, says := range map[string]string{
		"--amount 0": `--amount "0" is not an amount of EUR`, "--amount -1": `--amount "-1" is not an amount of EUR`,
		"--amount 5.001": `--amount "5.001" is not an amount of EUR`, "--amount 1,234": `--amount "1,234" is not an amount of EUR`, "--amount 5 --idempotency-key \"a": "--idempotency-key is not one",
	} {
		newFakeRefunds(t)
		run(t, "payments refund "+paidSession+" --key-env "+flags).want(t, terminal.ExitUsage, says)
	}
}

// An amount is read to the cent, in the form in which a person writes it.
func TestPaymentsRefund_Amounts(t *testing.T) {
	for amount, want := range map[string]string{"5": "500", "5.5": "550", "12,50": "1250", "1,234.50": "123450", "1.234,50": "123450"} {
		f := newFakeRefunds(t)
		run(t, "payments refund "+paidSession+" --key-env --idempotency-key return-1 --amount "+amount).want(t, terminal.ExitDone)
		f.wantAsked(t, `return-1 {"amountCents":`+want+`}`)
	}
}

// Where nobody knows whether it was asked for, the error says how to ask again.
func TestWithRefundAdvice_Unknown(t *testing.T) {
	id, err := parseSession(paidSession)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{&apiError{status: http.StatusServiceUnavailable}, &apiError{status: http.StatusTooManyRequests}, io.ErrUnexpectedEOF} {
		var text strings.Builder
		terminal.PrintError(&text, new(api).withRefundAdvice(err, id, "return-1"), error.Error)
		if !strings.Contains(text.String(), "Run the same command again with --idempotency-key return-1") {
			t.Errorf("%v: it says %s", err, text.String())
		}
	}
}
