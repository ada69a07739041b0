package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func charge(change func(*session.Charge)) session.Charge {
	c := session.Charge{
		AmountCents: 1250, OrderRef: "1001", TaxCents: new(int64(110)), TipCents: new(int64(0)), CustomerEmail: "ada@example.com",
	}
	change(&c)
	return c
}

func TestCharge_Valid(t *testing.T) {
	for desc, change := range map[string]func(*session.Charge){
		"as it is":                                 func(*session.Charge) {},
		"the least amount":                         func(c *session.Charge) { c.AmountCents = 1 },
		"the largest amount":                       func(c *session.Charge) { c.AmountCents = 10_000_000 },
		"the largest tax":                          func(c *session.Charge) { c.TaxCents = new(int64(10_000_000)) },
		"no more than an amount":                   func(c *session.Charge) { *c = session.Charge{AmountCents: 1} },
		"an order of 255 characters in more bytes": func(c *session.Charge) { c.OrderRef = strings.Repeat("é", 255) },
		"an order with quotes and emoji":           func(c *session.Charge) { c.OrderRef = `"table 7" 🍕 <b>` },
		"a description in any script": func(c *session.Charge) {
			c.Description = "2 Kaffee Ähre & カフェ ☕ (مقهى) 👩‍🍳 I ❤\ufe0f Tea"
		},
		"a description of 140 characters": func(c *session.Charge) { c.Description = strings.Repeat("é", 140) },
		"a description between spaces":    func(c *session.Charge) { c.Description = " 2 flat whites " },
		"an address that is none":         func(c *session.Charge) { c.CustomerEmail = "n/a" },
	} {
		if err := charge(change).Validate(); err != nil {
			t.Errorf("%s: %v", desc, err)
		}
	}
}

func TestCharge_Invalid(t *testing.T) {
	for desc, test := range map[string]struct {
		change func(*session.Charge)
		want   string
	}{
		"nothing at all":    {func(c *session.Charge) { *c = session.Charge{} }, "amountCents"},
		"a negative amount": {func(c *session.Charge) { c.AmountCents = -1 }, "amountCents"},
		"a cent too much":   {func(c *session.Charge) { c.AmountCents = 10_000_001 }, "amountCents"},
		"a negative tax":    {func(c *session.Charge) { c.TaxCents = new(int64(-1)) }, "taxCents"},
		"too much tax":      {func(c *session.Charge) { c.TaxCents = new(int64(10_000_001)) }, "taxCents"},
		"a negative tip":    {func(c *session.Charge) { c.TipCents = new(int64(-1)) }, "tipCents"},
		"too much tip":      {func(c *session.Charge) { c.TipCents = new(int64(10_000_001)) }, "tipCents"},
		"256 characters":    {func(c *session.Charge) { c.OrderRef = strings.Repeat("x", 256) }, "orderRef"},
		"a newline":         {func(c *session.Charge) { c.OrderRef = "a\nb" }, "orderRef"},
		"a NUL":             {func(c *session.Charge) { c.OrderRef = "a\x00b" }, "orderRef"},
		"a C1 control":      {func(c *session.Charge) { c.OrderRef = "a\u0085b" }, "orderRef"},
		"141 characters":    {func(c *session.Charge) { c.Description = strings.Repeat("é", 141) }, "description"},
		"only spaces":       {func(c *session.Charge) { c.Description = "  " }, "description"},
		"two lines":         {func(c *session.Charge) { c.Description = "2 flat whites\n1 croissant" }, "description"},
		"DEL":               {func(c *session.Charge) { c.Description = "a\x7fb" }, "description"},
		"a soft hyphen":     {func(c *session.Charge) { c.Description = "flat\u00adwhite" }, "description"},
		"a hidden space":    {func(c *session.Charge) { c.Description = "flat\u200bwhite" }, "description"},
		"another direction": {func(c *session.Charge) { c.Description = "\u202eetihw talf" }, "description"},
		"a hidden joiner":   {func(c *session.Charge) { c.Description = "flat\u200dwhite" }, "description"},
		"a stack of marks":  {func(c *session.Charge) { c.Description = "A" + strings.Repeat("\u0301", 5) }, "description"},
		"no UTF-8":          {func(c *session.Charge) { c.Description = "a\xffb" }, "description"},
		"invalid UTF-8":     {func(c *session.Charge) { c.OrderRef = "a\xffb" }, "orderRef"},
	} {
		c := charge(test.change)
		err := c.Validate()
		var field *session.FieldError
		if !errors.As(err, &field) || field.Field != test.want || !strings.HasPrefix(err.Error(), test.want+" must be ") {
			t.Errorf("%s: error %v, want one about %s", desc, err, test.want)
			continue
		}
	}
}

// Kept in Redis for a day: a release that computes another one turns retries into mismatches.
func TestFingerprint_Stable(t *testing.T) {
	const want = "c1d25d273c5a59f77692b25b2664d1f6"
	if got := charge(func(*session.Charge) {}).Fingerprint(); got != want {
		t.Errorf("Fingerprint = %s, want %s", got, want)
	}
}

func TestFingerprint_DifferentCharges(t *testing.T) {
	seen := map[string]string{}
	for desc, change := range map[string]func(*session.Charge){
		"as it is":         func(*session.Charge) {},
		"another amount":   func(c *session.Charge) { c.AmountCents = 12501 },
		"another order":    func(c *session.Charge) { c.OrderRef = "1002" },
		"no order":         func(c *session.Charge) { c.OrderRef = "" },
		"another tax":      func(c *session.Charge) { c.TaxCents = new(int64(0)) },
		"no tax":           func(c *session.Charge) { c.TaxCents = nil },
		"another tip":      func(c *session.Charge) { c.TipCents = new(int64(110)) },
		"no tip":           func(c *session.Charge) { c.TipCents = nil },
		"tax and tip swap": func(c *session.Charge) { c.TaxCents, c.TipCents = c.TipCents, c.TaxCents },
		"another address":  func(c *session.Charge) { c.CustomerEmail = "bob@example.com" },
		"a description":    func(c *session.Charge) { c.Description = "2 flat whites" },
		"a return URL":     func(c *session.Charge) { c.ReturnURL = "2 flat whites" },
		"no address":       func(c *session.Charge) { c.CustomerEmail = "" },
		"fields that run into each other": func(c *session.Charge) {
			c.OrderRef, c.TaxCents, c.CustomerEmail = `1001" 110 0 "ada@example.com`, nil, ""
		},
	} {
		fingerprint := charge(change).Fingerprint()
		if other, ok := seen[fingerprint]; ok {
			t.Errorf("%q and %q have the same fingerprint", desc, other)
		}
		seen[fingerprint] = desc
	}
}

func TestFingerprint_EqualCharges(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) session.Charge {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(`a" -1é`)), 0, 4, -1)
		return session.Charge{
			AmountCents:   rapid.Int64Range(0, 12).Draw(t, "amount"),
			OrderRef:      text.Draw(t, "order"),
			TaxCents:      rapid.Ptr(rapid.Int64Range(0, 2), true).Draw(t, "tax"),
			TipCents:      rapid.Ptr(rapid.Int64Range(0, 2), true).Draw(t, "tip"),
			CustomerEmail: text.Draw(t, "address"),
			Description:   text.Draw(t, "description"),
			ReturnURL:     text.Draw(t, "return URL"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := draw.Draw(t, "one"), draw.Draw(t, "other")
		if (one.Fingerprint() == other.Fingerprint()) != cmp.Equal(one, other) {
			t.Fatalf("%+v and %+v", one, other)
		}
	})
}

func BenchmarkFingerprint(b *testing.B) {
	for _, charge := range []struct {
		name string
		session.Charge
	}{
		{"fields=1", session.Charge{AmountCents: 1250}},
		{"fields=5", session.Charge{
			AmountCents: 1250, OrderRef: "table 7, order 4711", TaxCents: new(int64(200)), TipCents: new(int64(100)), CustomerEmail: "payer@example.com",
		}},
	} {
		b.Run(charge.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = charge.Fingerprint()
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	charge := session.Charge{AmountCents: 1250, OrderRef: "table 7, order 4711", TaxCents: new(int64(200)), TipCents: new(int64(100))}
	b.ReportAllocs()
	for b.Loop() {
		if err := charge.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}
