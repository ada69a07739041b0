package payments_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/xuri/excelize/v2"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// workbook returns the rows of a workbook as a spreadsheet shows them, and the file.
func workbook(t testing.TB, location *time.Location, fill func(*payments.Excel) error) ([][]string, *excelize.File) {
	t.Helper()
	book, err := payments.NewExcel(location)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	err = fill(book)
	if err == nil {
		_, err = book.WriteTo(&written)
	}
	if err := errors.Join(err, book.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := excelize.OpenReader(&written)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	rows, err := file.GetRows("payments")
	if err != nil {
		t.Fatal(err)
	}
	return rows, file
}

// A double click shows what was sold: orders with their zeros, amounts that can be added up, and times on the shop's clock.
func TestExcel(t *testing.T) {
	ended := time.Date(2026, 10, 25, 0, 30, 5, 123e6, time.UTC)
	sess := session.Session{CreatedAt: ended.Add(-time.Hour), Charge: session.Charge{AmountCents: 1250, OrderRef: "außen"}, Currency: "EUR", Status: session.Completed}
	movement, _ := payments.NewMovement(&sess, nil, &feed.Refund{Refund: session.Refund{Ref: "=back-1", PaymentRef: "0042", AmountCents: 500, At: ended}, Currency: "EUR"}, ended)
	rows, file := workbook(t, zone(t, "Europe/Berlin"), func(book *payments.Excel) error {
		return errors.Join(
			book.Write(payments.Payment{
				SessionID: "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7", Status: session.Completed, AmountCents: 1250, Currency: "EUR", OrderRef: "0012", TaxCents: new(int64(110)),
				CreatedAt: ended.UnixMilli() - 1000, EndedAt: ended.UnixMilli(), PaymentRef: "1E5", Key: "till-1",
			}),
			book.Write(payments.Payment{Status: session.Failed, AmountCents: 7, Currency: "JPY", OrderRef: "10;=1+1", Livemode: new(false), EndedAt: ended.Add(time.Hour).UnixMilli(), Reason: "no\x00 funds"}),
			book.WriteMovement(movement),
			book.Write(payments.Payment{Status: session.Completed, AmountCents: session.MaxReportedCents - 1, Currency: "EUR", EndedAt: ended.UnixMilli()}),
		)
	})
	want := [][]string{
		{"endedAtLocal", "kind", "status", "orderRef", "gross", "refunded", "net", "currency", "tax", "tip", "paymentRef", "refundRef", "reason", "createdAtLocal", "key", "livemode", "sessionId"},
		{"2026-10-25 02:30:05", "payment", "COMPLETED", "0012", "12.50", "0.00", "12.50", "EUR", "1.10", "", "1E5", "", "", "2026-10-25 02:30:04", "till-1", "TRUE", "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"},
		{"2026-10-25 02:30:05", "payment", "FAILED", "10;=1+1", "0", "0", "0", "JPY", "", "", "", "", "no\ufffd funds", "", "", "FALSE"},
		{"2026-10-25 02:30:05", "refund", "", "außen", "0.00", "5.00", "-5.00", "EUR", "", "", "0042", "=back-1", "", "2026-10-25 01:30:05", "", "TRUE"},
		{"2026-10-25 02:30:05", "payment", "COMPLETED", "", "9999999999999.99", "0.00", "9999999999999.99", "EUR", "", "", "", "", "", "", "", "TRUE"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for cell, want := range map[string]excelize.CellType{
		"A2": excelize.CellTypeUnset, "D2": excelize.CellTypeInlineString, "E2": excelize.CellTypeUnset, "G2": excelize.CellTypeUnset, "K2": excelize.CellTypeInlineString, // unset is a number
		"D3": excelize.CellTypeInlineString, "L4": excelize.CellTypeInlineString, "P2": excelize.CellTypeBool,
	} {
		if got, err := file.GetCellType("payments", cell); err != nil || got != want {
			t.Errorf("%s is of type %v, %v; want %v", cell, got, err, want)
		}
		if formula, err := file.GetCellFormula("payments", cell); err != nil || formula != "" {
			t.Errorf("%s has the formula %q, %v", cell, formula, err)
		}
	}
}
