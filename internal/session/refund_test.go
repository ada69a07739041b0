package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Every case there is. What was confirmed before is answered as before, whatever else is so by now.
func TestDecideRefund(t *testing.T) {
	for _, refund := range []session.RefundState{session.RefundUnknown, session.RefundSame, session.RefundOther} {
		for i := range 8 {
			paid, within, room := i&1 != 0, i&2 != 0, i&4 != 0
			want := map[session.RefundState]session.Decision{
				session.RefundSame: session.Repeated, session.RefundOther: session.Conflict,
				session.RefundUnknown: [8]session.Decision{
					session.NoPayment, session.ExceedsPayment, session.NoPayment, session.TooManyRefunds,
					session.NoPayment, session.ExceedsPayment, session.NoPayment, session.Applied,
				}[i],
			}[refund]
			if got := session.DecideRefund(refund, paid, within, room); got != want {
				t.Errorf("a refund that is %s, paid %t, within the payment %t, room %t: %s, want %s", refund, paid, within, room, got, want)
			}
		}
	}
}

func TestRefund_Validate(t *testing.T) {
	good := session.Refund{Ref: "refund-1", PaymentRef: "card-1", AmountCents: 1}
	long := strings.Repeat("x", 129)
	for name, test := range map[string]struct {
		change func(*session.Refund)
		field  string
	}{
		"good": {func(*session.Refund) {}, ""},
		"longest": {func(r *session.Refund) {
			r.Ref, r.PaymentRef, r.AmountCents = long[1:], long[1:], session.MaxReportedCents
		}, ""},
		"no payment":        {func(r *session.Refund) { r.PaymentRef = "" }, "paymentRef"},
		"long payment":      {func(r *session.Refund) { r.PaymentRef = long }, "paymentRef"},
		"payment with tab":  {func(r *session.Refund) { r.PaymentRef = "card\t1" }, "paymentRef"},
		"no refund":         {func(r *session.Refund) { r.Ref = "" }, "refundRef"},
		"long refund":       {func(r *session.Refund) { r.Ref = long }, "refundRef"},
		"refund with space": {func(r *session.Refund) { r.Ref = "refund 1" }, "refundRef"},
		"refund with ü":     {func(r *session.Refund) { r.Ref = "rückzahlung" }, "refundRef"},
		"nothing":           {func(r *session.Refund) { r.AmountCents = 0 }, "amountCents"},
		"negative":          {func(r *session.Refund) { r.AmountCents = -1 }, "amountCents"},
		"too much":          {func(r *session.Refund) { r.AmountCents = session.MaxReportedCents + 1 }, "amountCents"},
	} {
		refund := good
		test.change(&refund)
		err := refund.Validate()
		invalid, ok := errors.AsType[*session.FieldError](err)
		if (err == nil) != (test.field == "") || ok && invalid.Field != test.field {
			t.Errorf("%s: %v, want an error about %q", name, err, test.field)
		}
	}
}
