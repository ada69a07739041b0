package payments

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/xuri/excelize/v2"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// fakeLedger is an API with ended sessions, three a page, whose answers a test breaks.
type fakeLedger struct {
	url string

	mu      sync.Mutex
	ended   []payments.Payment  // the newest first
	moved   []payments.Movement // all on the first page
	answers []http.HandlerFunc  // of the next pages
	reads   []url.Values
	date    time.Time // of the API's clock; zero: now
}

func newFakeLedger(t *testing.T, ended ...payments.Payment) *fakeLedger {
	t.Helper()
	f := &fakeLedger{ended: ended}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	t.Setenv("API_URL", f.url)
	t.Setenv("API_KEY", fakeKey)
	return f
}

func (f *fakeLedger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.date.IsZero() {
		w.Header().Set("Date", f.date.UTC().Format(http.TimeFormat))
	}
	if r.URL.Path == fixture.Me {
		_, _ = io.WriteString(w, `{"livemode":true,"merchant":{"id":"mer_abcdefgh2345","name":"Acme","timeZone":"Europe/Berlin"}}`)
		return
	}
	query := r.URL.Query()
	f.reads = append(f.reads, query)
	if len(f.answers) > 0 {
		answer := f.answers[0]
		if f.answers = f.answers[1:]; answer != nil {
			answer(w, r)
			return
		}
	}
	const size = 3
	first, _ := strconv.Atoi(query.Get("cursor"))
	last := min(first+size, len(f.ended))
	answer := page{Sessions: f.ended[first:last]}
	if first == 0 && query.Get("movements") == "true" {
		answer.Movements = f.moved
	}
	if last < len(f.ended) {
		answer.Cursor = strconv.Itoa(last)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// endedOn are n sessions that ended a second apart, the last one at the time.
func endedOn(last time.Time, n int) (all []payments.Payment) {
	for i := range n {
		at := last.Add(-time.Duration(i) * time.Second)
		all = append(all, payments.Payment{
			SessionID: fmt.Sprintf("ps_abcdefgh2345T2xV9bLrYc8WdNe%04d", i), Status: "COMPLETED", AmountCents: 1001, Currency: "EUR",
			OrderRef: strconv.Itoa(i), PaymentRef: "card-" + strconv.Itoa(i), CreatedAt: at.Add(-time.Minute).UnixMilli(), EndedAt: at.UnixMilli(),
		})
	}
	return all
}

var closing = time.Date(2026, 11, 20, 17, 0, 0, 0, time.UTC)

// All pages are in the export, which asks for the day of the shop.
func TestPaymentsExport(t *testing.T) {
	f := newFakeLedger(t, endedOn(closing, 10)...)
	got := run(t, "payments export --key-env --day 2026-11-20").want(t, terminal.ExitDone, "COMPLETED   100.10 EUR   10 sessions")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if err != nil || len(rows) != 11 {
		t.Fatalf("%d rows: %v\n%s", len(rows), err, got.out)
	}
	if want := "ps_abcdefgh2345T2xV9bLrYc8WdNe0009"; rows[10][0] != want || rows[10][12] != "2026-11-20 17:59:51" {
		t.Errorf("the last row is %v", rows[10])
	}
	// From midnight to midnight in Berlin, in milliseconds.
	if query := f.reads[0]; query.Get("endedFrom") != "1795129200000" || query.Get("endedTo") != "1795215600000" || query.Has("status") || query.Get("movements") != "true" {
		t.Errorf("asked for %v", query)
	}
	if strings.Contains(got.problems, "is not over") {
		t.Errorf("it says %s", got.problems)
	}
}

// A workbook is a file of its own, whole or not there.
func TestPaymentsExport_File(t *testing.T) {
	f := newFakeLedger(t, endedOn(closing, 10)...)
	f.moved = []payments.Movement{moved(payments.Refunded, 2500, "EUR", 0)}
	name := filepath.Join(t.TempDir(), "day.xlsx")
	if got := run(t, "payments export --key-env --day 2026-11-20 --file "+name).want(t, terminal.ExitDone, "COMPLETED   100.10 EUR   10 sessions"); got.out != "" {
		t.Errorf("it prints %q", got.out)
	}
	book, err := excelize.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := book.GetRows("payments")
	if err != nil || len(rows) != 12 || rows[1][5] != "25.00" || rows[2][3] != "0" || rows[2][0] != "2026-11-20 18:00:00" {
		t.Errorf("%v, %v", rows, err)
	}
	f.answers = []http.HandlerFunc{failing(http.StatusForbidden, `{"error":"no"}`)}
	lost := filepath.Join(t.TempDir(), "lost.xlsx")
	run(t, "payments export --key-env --day 2026-11-20 --file "+lost).want(t, terminal.ExitError)
	run(t, "payments export --key-env --day 2026-11-20 --file "+filepath.Join(t.TempDir(), "none", "a.xlsx")).want(t, terminal.ExitError, "no such file or directory")
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(lost), "*")); err != nil || len(left) > 0 {
		t.Errorf("an export that failed leaves %v, %v", left, err)
	}
}

// moved is a movement that was recorded so long before closing.
func moved(kind payments.Kind, cents int64, currency string, before time.Duration) payments.Movement {
	movement := payments.Movement{
		Kind: kind, SessionID: "ps_abcdefgh2345T2xV9bLrYc8WdNe9999", OrderRef: "=1", PaymentRef: "card-9", AmountCents: cents, Currency: currency,
		RecordedAt: closing.Add(-before).UnixMilli(), CreatedAt: closing.Add(-time.Hour).UnixMilli(),
	}
	if kind == payments.Refunded {
		movement.RefundRef = "back-9"
	}
	return movement
}

// What else moved has rows between those of the sessions, and a net sum. A list of one status has neither.
func TestPayments_Movements(t *testing.T) {
	f := newFakeLedger(t, endedOn(closing, 2)...)
	f.moved = []payments.Movement{
		moved(payments.Refunded, 2500, "EUR", 0), moved(payments.Refused, 1250, "JPY", 500*time.Millisecond), moved(payments.Refunded, 1, "EUR", time.Minute),
	}
	const day = " --key-env --day 2026-11-20"
	got := run(t, "payments export"+day).want(t, terminal.ExitDone, "COMPLETED   20.02 EUR   2 sessions", "NET         -4.99 EUR   gross 20.02 (paid 20.02, refused 0.00), refunded 25.01",
		"NET         1250 JPY    gross 1250 (paid 0, refused 1250), refunded 0")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, row := range rows[1:] {
		lines = append(lines, strings.Join([]string{row[16], row[1], row[2], row[3], row[7], row[8], row[12], row[17], row[18]}, " "))
	}
	want := []string{
		"refund  -2500 EUR '=1 card-9 2026-11-20 18:00:00 -25.00 back-9", "payment COMPLETED 1001 EUR 0 card-0 2026-11-20 18:00:00 10.01 ",
		"refused  1250 JPY '=1 card-9 2026-11-20 17:59:59 1250 ", "payment COMPLETED 1001 EUR 1 card-1 2026-11-20 17:59:59 10.01 ",
		"refund  -1 EUR '=1 card-9 2026-11-20 17:59:00 -0.01 back-9",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	run(t, "payments list --limit 3"+day).want(t, terminal.ExitDone, "2026-11-20 18:00:00   REFUND      <none>      25.00 EUR   -25.00 EUR   =1      card-9    ps_abcdefgh2345T2xV9bLrYc8WdNe9999",
		"2026-11-20 17:59:59   REFUSED     1250 JPY", "… and 2 more", "NET ")
	var report dayReport
	text := run(t, "payments export -o json"+day).want(t, terminal.ExitDone).out
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Payments) != 2 || len(report.Movements) != 3 || len(report.Net) != 2 || report.Net[0].AmountCents != -499 {
		t.Errorf("%+v: %v", report, err)
	}
	one := run(t, "payments export --status COMPLETED -o json"+day).want(t, terminal.ExitDone).out
	if strings.Contains(one, "movements") || strings.Contains(one, `"net"`) {
		t.Errorf("of one status: %s", one)
	}
	if query := f.reads[len(f.reads)-1]; query.Has("movements") {
		t.Errorf("asked for %v", query)
	}
}

// A day that goes on is not taken for a whole one, by the API's clock.
func TestPaymentsExport_BeforeTheEndOfTheDay(t *testing.T) {
	f := newFakeLedger(t, endedOn(closing, 1)...)
	f.date = time.Date(2026, 11, 20, 22, 59, 59, 0, time.UTC)
	run(t, "payments export --key-env --day 2026-11-20").want(t, terminal.ExitDone, "2026-11-20 is not over in Europe/Berlin: more can follow.")
	f.date = f.date.Add(time.Second)
	got := run(t, "payments export --key-env --day 2026-11-20 -o json").want(t, terminal.ExitDone)
	var report dayReport
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || !report.Over || report.Day != "2026-11-20" || report.TimeZone != "Europe/Berlin" || len(report.Payments) != 1 {
		t.Errorf("%+v: %v", report, err)
	}
}

// Half a day is never printed: there is all of it, or nothing and an error.
func TestPaymentsExport_WholeOrNotAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		answers []http.HandlerFunc // of the pages; nil: the page
		whole   bool
		says    string
	}{
		"a page that comes late":  {[]http.HandlerFunc{nil, failing(http.StatusServiceUnavailable, `{"error":"unavailable"}`, "Retry-After", "1")}, true, "The API answers again."},
		"a page that is cut":      {[]http.HandlerFunc{nil, failing(http.StatusOK, `{"sessions":[{"sessionId":"ps_`)}, true, "The API answers again."},
		"over the limit":          {[]http.HandlerFunc{nil, failing(http.StatusTooManyRequests, `{"error":"too many requests"}`, "Retry-After", "1")}, true, "answers 429"},
		"a key that was rotated":  {[]http.HandlerFunc{nil, failing(http.StatusUnauthorized, `{"error":"missing or invalid API key"}`)}, false, "explain-401"},
		"a cursor that is gone":   {[]http.HandlerFunc{nil, nil, failing(http.StatusConflict, `{"error":"the list changed"}`)}, false, "the list changed"},
		"the same page for ever":  {[]http.HandlerFunc{nil, failing(http.StatusOK, `{"sessions":[],"cursor":"3"}`)}, false, "same cursor"},
		"an older API":            {[]http.HandlerFunc{failing(http.StatusBadRequest, `{"error":"unknown parameter \"movements\""}`)}, false, "has it the version of this plugin"},
		"a newer API":             {[]http.HandlerFunc{failing(http.StatusOK, `{"sessions":[],"movements":[{"kind":"charge\u001b[2Jback","amountCents":1}]}`)}, false, `unknown here: "charge\x1b[2Jback"`},
		"older than what is kept": {[]http.HandlerFunc{failing(http.StatusGone, `{"error":"the day is not kept"}`)}, false, "the day is not kept"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeLedger(t, endedOn(closing, 8)...)
			f.answers = test.answers
			code, lines := terminal.ExitError, 0
			if test.whole {
				code, lines = terminal.ExitDone, 9
			}
			got := run(t, "payments export --key-env --day 2026-11-20").want(t, code, test.says)
			if n := strings.Count(got.out, "\n"); n != lines {
				t.Errorf("%d lines, want %d\n%s", n, lines, got.out)
			}
		})
	}
}

// The table has the newest rows; its sums are of all.
func TestPaymentsList(t *testing.T) {
	all := endedOn(closing, 5)
	all[1].Status, all[1].OrderRef, all[1].Currency = "FAILED", "\x1b[2J", "JPY"
	newFakeLedger(t, all...)
	got := run(t, "payments list --key-env --day 2026-11-20 --limit 2").want(t, terminal.ExitDone)
	want := `ENDED                 STATUS      AMOUNT      REFUNDED   NET         ORDER   PAYMENT   SESSION
2026-11-20 18:00:00   COMPLETED   10.01 EUR   <none>     10.01 EUR   0       card-0    ps_abcdefgh2345T2xV9bLrYc8WdNe0000
2026-11-20 17:59:59   FAILED      1001 JPY    <none>     <none>      ` + "\ufffd" + `[2J    card-1    ps_abcdefgh2345T2xV9bLrYc8WdNe0001
… and 3 more; --limit 0 lists them

COMPLETED   40.04 EUR   4 sessions
FAILED      1001 JPY    1 session
`
	if diff := cmp.Diff(want, got.out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rows := strings.Count(run(t, "payments list --key-env --day 2026-11-20 --limit 0").out, "ps_"); rows != 5 {
		t.Errorf("%d rows, want all 5", rows)
	}
}

// A day of which the API has deleted a part is no export, and its table ends with an error.
func TestPayments_IncompleteDay(t *testing.T) {
	const midday = `,"completeFrom":1795172400000}`
	f := newFakeLedger(t, endedOn(closing, 4)...)
	text, err := json.Marshal(f.ended[:3])
	if err != nil {
		t.Fatal(err)
	}
	part := failing(http.StatusOK, `{"sessions":`+string(text)+midday)
	const says = "has only what ended since 2026-11-20 12:00:00"
	for _, format := range []string{"csv", "json"} {
		f.answers = []http.HandlerFunc{part}
		if got := run(t, "payments export --key-env --day 2026-11-20 -o "+format).want(t, terminal.ExitError, says); got.out != "" {
			t.Errorf("it prints %s", got.out)
		}
	}
	f.answers = []http.HandlerFunc{part}
	run(t, "payments list --key-env --day 2026-11-20").want(t, terminal.ExitError, says, "30.03 EUR", "these are not all payments of 2026-11-20")
}

func TestPaymentsList_FutureDay(t *testing.T) {
	newFakeLedger(t)
	run(t, "payments list --key-env --day 2100-01-01").want(t, terminal.ExitUsage, "--day 2100-01-01 has not started", "In Europe/Berlin today is ")
}

func TestPaymentsList_StatusAndEmptyDay(t *testing.T) {
	f := newFakeLedger(t)
	run(t, "payments list --key-env --day yesterday --status failed").want(t, terminal.ExitDone, "No payments on ")
	if got := f.reads[0].Get("status"); got != "FAILED" {
		t.Errorf("asked for %q", got)
	}
	got := run(t, "payments list --key-env --day yesterday -o json").want(t, terminal.ExitDone)
	if !strings.Contains(got.out, `"sums": [],`) || !strings.Contains(got.out, `"payments": []`) {
		t.Errorf("got %s", got.out)
	}
	got = run(t, "payments list --key-env --day yesterday -o json").want(t, terminal.ExitDone)
	if !strings.Contains(got.out, `"net": [],`) || !strings.Contains(got.out, `"movements": []`) {
		t.Errorf("got %s", got.out)
	}
}

// Tills keep half of the merchant's requests while a day is read.
func TestRestFor(t *testing.T) {
	for left, want := range map[string]bool{`"merchant";r=99;t=1`: false, `"merchant";r=51;t=1`: false, `"merchant";r=50;t=1`: true, `"merchant";r=0;t=2`: true, "": false, "r=1": false} {
		header := http.Header{"Ratelimit": {left}, "Ratelimit-Policy": {`"merchant";q=100;w=2`}}
		if got := restFor(header) > 0; got != want {
			t.Errorf("%s: rests %v, want %v", left, got, want)
		}
	}
}

// What was refused and what went back is shown with each payment, and what the till has written does not reach the terminal as it is.
func TestWritePayment_Refunds(t *testing.T) {
	const body = `{"sessionId": "ps_1", "status": "COMPLETED", "amountCents": 1250, "currency": "EUR", "description": "2 flat\u001b[2J whites", "createdAt": 1795246260000, "endedAt": 1795246300000, "payments": [
		{"paymentRef": "card-1", "amountCents": 1250, "currency": "EUR", "refused": false, "refundedCents": 500, "refunds": [{"refundRef": "back-1", "amountCents": 500, "refundedAt": 1795246400000}]},
		{"paymentRef": "card-2", "amountCents": 1250, "currency": "EUR", "refused": true, "refundedCents": 0, "refunds": []}],
		"refundRequests": [{"refundId": "rf_1", "status": "REQUESTED", "amountCents": 200, "reason": "cold\u001b[2J", "requestedAt": 1795246400000},
		{"refundId": "rf_2", "status": "REJECTED", "amountCents": 300, "requestedAt": 1795246400000, "decidedAt": 1795246460000, "rejectReason": "account closed\n"}]}`
	var payment payments.Payment
	if err := json.Unmarshal([]byte(body), &payment); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := writePayment(&text, payment, time.UTC); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"Description   2 flat\ufffd[2J whites\n",
		"Refunded      5.00 EUR of payment card-1, refund back-1, 2026-11-21 07:33:20",
		"Refused       12.50 EUR, payment card-2, to refund: 12.50 EUR",
		"Asked for     2.00 EUR, refund rf_1, 2026-11-21 07:33:20: REQUESTED; cold\ufffd[2J\n",
		"Asked for     3.00 EUR, refund rf_2, 2026-11-21 07:33:20: REJECTED 2026-11-21 07:34:20, account closed\ufffd\n",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no line %q in\n%s", line, text.String())
		}
	}
}
