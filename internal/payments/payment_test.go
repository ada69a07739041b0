package payments_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestSums(t *testing.T) {
	var sums payments.Sums
	if got := sums.Each(); len(got) != 0 {
		t.Errorf("an empty day has %v", got)
	}
	for _, payment := range []payments.Payment{
		{Status: session.Expired, AmountCents: 500, Currency: "EUR"},
		{Status: session.Completed, AmountCents: 1250, Currency: "EUR"},
		{Status: session.Completed, AmountCents: 1, Currency: "EUR"},
		{Status: session.Completed, AmountCents: 700, Currency: "CHF"}, // the merchant's currency was changed
		{Status: session.Cancelled, AmountCents: 5, Currency: "EUR"},
		{Status: session.Failed, AmountCents: 5, Currency: "JPY"},
	} {
		sums.Add(payment)
	}
	want := []payments.Sum{
		{session.Completed, "CHF", 1, 700, "7.00"},
		{session.Completed, "EUR", 2, 1251, "12.51"},
		{session.Failed, "JPY", 1, 5, "5"},
		{session.Expired, "EUR", 1, 500, "5.00"},
		{session.Cancelled, "EUR", 1, 5, "0.05"},
	}
	if diff := cmp.Diff(want, sums.Each()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What came in, less what went back, in each currency; what ended unpaid is not in it.
func TestSums_Net(t *testing.T) {
	var sums payments.Sums
	sums.Add(payments.Payment{Status: session.Completed, AmountCents: 1250, Currency: "EUR"})
	sums.Add(payments.Payment{Status: session.Failed, AmountCents: 9, Currency: "EUR"})
	sums.Add(payments.Payment{Status: session.Failed, AmountCents: 9, Currency: "CHF"})
	for _, moved := range []payments.Movement{
		{Kind: payments.Refused, AmountCents: 300, Currency: "JPY"},
		{Kind: payments.Refunded, AmountCents: 2000, Currency: "EUR"}, // of an earlier day too
		{Kind: payments.Refunded, AmountCents: 1, Currency: "JPY"},
	} {
		sums.AddMovement(moved)
	}
	want := []payments.Net{
		{Currency: "EUR", PaidCents: 1250, RefundedCents: 2000, AmountCents: -750, Amount: "-7.50"},
		{Currency: "JPY", RefusedCents: 300, RefundedCents: 1, AmountCents: 299, Amount: "299"},
	}
	if diff := cmp.Diff(want, sums.Net()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A float64 would lose the cent.
func TestSums_AreExact(t *testing.T) {
	var sums payments.Sums
	sums.Add(payments.Payment{Status: session.Completed, Currency: "EUR", AmountCents: 1 << 53})
	sums.Add(payments.Payment{Status: session.Completed, Currency: "EUR", AmountCents: 1})
	if got := sums.Each()[0]; got.AmountCents != 1<<53+1 || got.Amount != "90071992547409.93" {
		t.Errorf("got %+v", got)
	}
}
