package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func payment(change func(*session.Payment)) session.Payment {
	p := session.Payment{Ref: "rail-1", Outcome: session.Completed, AmountCents: 1250}
	change(&p)
	return p
}

func TestPayment_Valid(t *testing.T) {
	for desc, change := range map[string]func(*session.Payment){
		"the least":               func(p *session.Payment) { p.Ref, p.AmountCents = "!", 1 },
		"the longest reference":   func(p *session.Payment) { p.Ref = strings.Repeat("~", 128) },
		"the largest amount":      func(p *session.Payment) { p.AmountCents = session.MaxReportedCents },
		"a failure":               func(p *session.Payment) { p.Outcome = session.Failed },
		"the first time there is": func(p *session.Payment) { p.PaidAt = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) },
		"the last time there is":  func(p *session.Payment) { p.PaidAt = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC) },
		"the longest reason":      func(p *session.Payment) { p.Reason = strings.Repeat("é", 255) },
	} {
		if err := payment(change).Validate(); err != nil {
			t.Errorf("%s: %v", desc, err)
		}
	}
}

func TestPayment_Invalid(t *testing.T) {
	for _, test := range []struct {
		field, desc string
		change      func(*session.Payment)
	}{
		{"currency", "small letters", func(p *session.Payment) { p.Currency = "eur" }},
		{"currency", "too short", func(p *session.Payment) { p.Currency = "EU" }},
		{"currency", "too long", func(p *session.Payment) { p.Currency = "EURO" }},
		{"currency", "not ASCII", func(p *session.Payment) { p.Currency = "EÜ" }},
		{"currency", "a space", func(p *session.Payment) { p.Currency = "EU " }},
		{"paymentRef", "none", func(p *session.Payment) { p.Ref = "" }},
		{"paymentRef", "too long", func(p *session.Payment) { p.Ref = strings.Repeat("a", 129) }},
		{"paymentRef", "a space", func(p *session.Payment) { p.Ref = "rail 1" }},
		{"paymentRef", "a newline", func(p *session.Payment) { p.Ref = "rail\n" }},
		{"paymentRef", "a NUL", func(p *session.Payment) { p.Ref = "rail\x00" }},
		{"paymentRef", "a letter that is not ASCII", func(p *session.Payment) { p.Ref = "räil" }},
		{"paymentRef", "bytes that are no text", func(p *session.Payment) { p.Ref = "rail\xff" }},
		{"outcome", "none", func(p *session.Payment) { p.Outcome = "" }},
		{"outcome", "a status that is no outcome", func(p *session.Payment) { p.Outcome = session.Cancelled }},
		{"outcome", "pending", func(p *session.Payment) { p.Outcome = session.Pending }},
		{"outcome", "lower case", func(p *session.Payment) { p.Outcome = "completed" }},
		{"amountCents", "none", func(p *session.Payment) { p.AmountCents = 0 }},
		{"amountCents", "negative", func(p *session.Payment) { p.AmountCents = -1 }},
		{"amountCents", "too large", func(p *session.Payment) { p.AmountCents = session.MaxReportedCents + 1 }},
		{"paidAt", "before 2020", func(p *session.Payment) { p.PaidAt = time.Date(2020, 1, 1, 0, 0, 0, -1, time.UTC) }},
		{"paidAt", "seconds as milliseconds", func(p *session.Payment) { p.PaidAt = time.UnixMilli(1_795_246_300) }},
		{"paidAt", "the year 10000", func(p *session.Payment) { p.PaidAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"reason", "too long", func(p *session.Payment) { p.Reason = strings.Repeat("é", 256) }},
		{"reason", "a control character", func(p *session.Payment) { p.Reason = "no\x07" }},
		{"reason", "a newline", func(p *session.Payment) { p.Reason = "no\nfunds" }},
		{"reason", "bytes that are no text", func(p *session.Payment) { p.Reason = "\xff" }},
	} {
		err := payment(test.change).Validate()
		refused, ok := errors.AsType[*session.FieldError](err)
		if !ok || refused.Field != test.field {
			t.Errorf("%s, %s: %v", test.field, test.desc, err)
		}
	}
}

func TestValidateHold(t *testing.T) {
	for name, test := range map[string]struct {
		ref     string
		seconds int64
		field   string
	}{
		"a release": {"a", 0, ""}, "the longest": {"a", 120, ""}, "negative": {"a", -1, "seconds"}, "too long": {"a", 121, "seconds"},
		"no reference": {"", 1, "paymentRef"}, "a space": {"a b", 1, "paymentRef"},
	} {
		err := session.ValidateHold(test.ref, test.seconds)
		bad, is := errors.AsType[*session.FieldError](err)
		if is != (test.field != "") || is && bad.Field != test.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRail(t *testing.T) {
	bank := session.NewRail("system:serviceaccount:rails:bank")
	if other := session.NewRail("system:serviceaccount:rails:card"); len(bank) != 22 || bank == other || bank != session.NewRail("system:serviceaccount:rails:bank") {
		t.Errorf("%q and %q", bank, other)
	}
	if rail, ref, ok := session.ParseScoped(bank.Scope("a b")); rail != bank || ref != "a b" || !ok {
		t.Errorf("%q %q %v", rail, ref, ok)
	}
	if _, _, ok := session.ParseScoped("a"); ok {
		t.Error("a reference alone")
	}
}

func TestMaxTimestamp(t *testing.T) {
	last := time.UnixMilli(session.MaxTimestamp)
	if !session.ValidTime(last) || session.ValidTime(last.Add(time.Millisecond)) {
		t.Errorf("%s is not the last time that a caller may give", last.UTC())
	}
}
