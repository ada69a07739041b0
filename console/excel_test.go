package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/xuri/excelize/v2"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// A bookkeeper opens a day with a double click: it has what the CSV has. A day that is too long says so, and one that is not kept whole has no file.
func TestExcel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin, euros)
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments.xlsx"
	noon := time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC)
	order := ended(m, 3, session.Completed, 1250, noon)
	order.Charge.OrderRef = "0012"
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{live(m): {refunded(m, 1, 500, noon), refused(m, 2, 300, noon), order, ended(m, 4, session.Expired, 480, noon)}}}
	f.payments.Store = reader
	got := browser.Get(t, path+"?day=2026-11-22")
	if got.Status != http.StatusOK || got.Header.Get("Content-Disposition") != `attachment; filename="payments-acme-2026-11-22.xlsx"` {
		t.Fatalf("%d %v: %s", got.Status, got.Header, got.Text)
	}
	book, err := excelize.OpenReader(strings.NewReader(got.Text))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := book.GetRows("payments")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for _, row := range rows {
		lines = append(lines, row[:8])
	}
	want := [][]string{
		{"endedAtLocal", "kind", "status", "orderRef", "gross", "refunded", "net", "currency"},
		{"2026-11-22 12:00:00", "refund", "", "order-1", "0.00", "5.00", "-5.00", "EUR"},
		{"2026-11-22 12:00:00", "refused", "", "order-2", "3.00", "0.00", "3.00", "EUR"},
		{"2026-11-22 12:00:00", "payment", "COMPLETED", "0012", "12.50", "0.00", "12.50", "EUR"},
		{"2026-11-22 12:00:00", "payment", "EXPIRED", "order-4", "0.00", "0.00", "0.00", "EUR"},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if empty := browser.Get(t, path+"?mode=test&day=2026-11-22"); empty.Status != http.StatusOK || !strings.Contains(empty.Header.Get("Content-Disposition"), "2026-11-22-test.xlsx") {
		t.Errorf("an empty day of test mode: %d %v", empty.Status, empty.Header)
	}
	for i := range 10_000 {
		reader.all[live(m)] = append(reader.all[live(m)], ended(m, 5+i, session.Completed, 1, noon))
	}
	if page := browser.Get(t, path+"?day=2026-11-22"); page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Text, "Its CSV has all of them.") {
		t.Errorf("a day that is too long: %d %s", page.Status, page.Text)
	}
	reader.kept = noon
	if page := browser.Get(t, path+"?day=2026-11-22"); page.Status != http.StatusGone {
		t.Errorf("a day that is not kept whole: %d", page.Status)
	}
}
