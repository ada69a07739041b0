package console

import (
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// download reads a CSV as a browser does; err is that of its connection.
func download(t *testing.T, browser oidctest.Browser, address string) (page oidctest.Page, err error) {
	t.Helper()
	response, err := browser.Client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return oidctest.Page{Status: response.StatusCode, Header: response.Header, Text: string(content)}, err
}

// The file has all payments of the day that were in several reads, and no others; texts of others are no formulas.
func TestExportPayments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin)
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments.csv"
	at := time.Date(2026, 11, 22, 22, 59, 59, 0, time.UTC)
	all := []store.EndedSession{ended(m, 0, session.Completed, 7, at.Add(time.Second))} // of the next day
	for i := 1; i <= 2*store.MaxEnded+1; i++ {
		all = append(all, ended(m, i, session.Completed, int64(i), at))
	}
	all[1].Charge.OrderRef = "=1+1"
	all[1].KeyID = published.ID(f.apiKey(m, "till-1").UID)
	all[2].KeyID = "deletedkey23"
	all = append(all, ended(m, 0, session.Completed, 7, at.Add(-24*time.Hour)))
	f.payments.Store = &fakePayments{all: map[store.Account][]store.EndedSession{live(m): all}}

	file, err := download(t, browser, path+"?day=2026-11-22")
	if err != nil || file.Status != http.StatusOK {
		t.Fatalf("%d, %v: %.300s", file.Status, err, file.Text)
	}
	rows, err := csv.NewReader(strings.NewReader(file.Text)).ReadAll()
	if err != nil || len(rows) != 2*store.MaxEnded+2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	sum := 0
	for _, row := range rows[1:] {
		cents, _ := strconv.Atoi(row[2])
		sum += cents
	}
	const n = 2*store.MaxEnded + 1
	if sum != n*(n+1)/2 {
		t.Errorf("the sum is %d", sum)
	}
	if diff := cmp.Diff([]string{all[1].KeyID, "till-1", "deletedkey23", ""}, append(rows[1][14:16:16], rows[2][14:16]...)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if rows[1][7] != "'=1+1" || rows[2][12] != "2026-11-22 23:59:59" {
		t.Errorf("the first rows are %q", rows[1:3])
	}
	for header, want := range map[string]string{
		"Content-Type": "text/csv; charset=utf-8; header=present", "Content-Disposition": `attachment; filename="payments-acme-2026-11-22.csv"`, "Cache-Control": "no-store",
	} {
		if got := file.Header.Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	if file, _ := download(t, browser, path+"?mode=test&day=2026-11-22"); strings.Count(file.Text, "\r\n") != 1 || !strings.Contains(file.Header.Get("Content-Disposition"), "2026-11-22-test.csv") {
		t.Errorf("test mode: %v, %s", file.Header, file.Text)
	}
}

// A file that is not whole says so, and is no finished download. Before its first line a failure is a page.
func TestExportPayments_BrokenOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments.csv"
	var all []store.EndedSession
	now := f.clock()
	for i := range 3 * store.MaxEnded {
		all = append(all, ended(m, i, session.Completed, 1, now))
	}
	for failAt, want := range map[int]int{1: 0, 2: store.MaxEnded, 3: 2 * store.MaxEnded} {
		f.payments.Store = &fakePayments{all: map[store.Account][]store.EndedSession{live(m): all}, failAt: failAt}
		file, err := download(t, browser, path)
		switch rows := strings.Count(file.Text, "COMPLETED,1,EUR"); {
		case failAt == 1:
			if file.Status != http.StatusServiceUnavailable || err != nil {
				t.Errorf("the first read fails: %d %v", file.Status, err)
			}
		case !errors.Is(err, io.ErrUnexpectedEOF) || rows != want || !strings.HasSuffix(file.Text, "\r\nTHIS FILE IS NOT COMPLETE. Download it again.\r\n"):
			t.Errorf("read %d fails: %d rows, %v, ends with %q", failAt, rows, err, file.Text[max(0, len(file.Text)-100):])
		}
	}
}

func TestExportPayments_Refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.payments.Store = &fakePayments{}
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments.csv"
	for _, day := range []string{"tomorrow", "2026-02-30", "<b>", "2026-11-22T00:00:00Z"} {
		if page := browser.Get(t, path+"?day="+day); page.Status != http.StatusBadRequest || !strings.Contains(page.Text, "Choose a day") {
			t.Errorf("%s: %d %s", day, page.Status, page.Text)
		}
	}
	f.payments.Store = &fakePayments{kept: f.clock()}
	if page := browser.Get(t, path); page.Status != http.StatusGone || !strings.Contains(page.Text, "Too long ago") {
		t.Errorf("a day that is not kept whole: %d %s", page.Status, page.Text)
	}
	f.payments.Store = &fakePayments{}
	var ends []func()
	for range 2 {
		end, err := f.payments.Downloads.Begin("oidc:alice", f.namespace)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if page := browser.Get(t, path); page.Status != http.StatusTooManyRequests || !strings.Contains(page.Text, "Too many downloads") {
		t.Errorf("a third download: %d %s", page.Status, page.Text)
	}
	if end, err := f.payments.Downloads.Begin("somebody else", f.namespace); err != nil {
		t.Error("somebody else waits for the downloads of alice:", err)
	} else {
		end()
	}
	ends[0]()
	if page := browser.Get(t, path); page.Status != http.StatusOK {
		t.Errorf("after one has ended: %d", page.Status)
	}
	ends[1]()
	wantIdle(t, f.payments.Downloads, 32)
}

// The sum of the column net is what came in that day, less what went back that day, whatever was refused or refunded.
func TestExportPayments_Net(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments.csv"
	paid := f.paid(m, 1250)
	f.settle(paid, session.Payment{Ref: "card-2", Outcome: session.Completed, AmountCents: 1250}) // twice
	f.settle(f.charge(m, "key", session.Charge{AmountCents: 700}), session.Payment{Ref: "card-3", Outcome: session.Failed, AmountCents: 700})
	key, err := session.ParseIdempotencyKey("rejected")
	if err != nil {
		t.Fatal(err)
	}
	asked, err := f.store.RequestRefundFor(t.Context(), paid, store.AskedRefund{Idempotency: key, AmountCents: new(int64(9))})
	if err == nil {
		_, err = f.store.RejectRefund(t.Context(), paid, store.Rejection{PaymentRef: "card-1", RefundID: asked.ID})
	}
	for _, refund := range []session.Refund{{Ref: "=back-2", PaymentRef: "card-2", AmountCents: 1250}, {Ref: "back-1", PaymentRef: "card-1", AmountCents: 500}} {
		if err == nil {
			_, err = f.store.Refund(t.Context(), paid, refund)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := download(t, browser, path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(file.Text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows[1:] { // the newest first
		got = append(got, strings.Join([]string{row[16], row[1], row[2], row[3], row[8], row[17], row[18]}, " "))
	}
	want := []string{
		"refund  -500 EUR card-1 -5.00 back-1", "refund  -1250 EUR card-2 -12.50 '=back-2", "payment FAILED 700 EUR card-3 0.00 ",
		"refused  1250 EUR card-2 12.50 ", "payment COMPLETED 1250 EUR card-1 12.50 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, file.Text)
	}
}
