package session_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestStatus_Final(t *testing.T) {
	for status, want := range map[session.Status]bool{
		session.Pending: false, session.Completed: true, session.Failed: true, session.Expired: true, session.Cancelled: true, "": false, "completed": false,
	} {
		if got := status.Final(); got != want {
			t.Errorf("%q is final: %t", status, got)
		}
	}
}

func TestParseCents(t *testing.T) {
	for literal, want := range map[string]int64{
		"0": 0, "-0": 0, "0.000": 0, "0e999999999999999999999": 0, "-0e-5": 0,
		"1": 1, "1000": 1000, "1000.0": 1000, "1e3": 1000, "1E+3": 1000, "100000e-2": 1000, "0.001e6": 1000,
		"12.5e1": 125, "10000000": 10_000_000, "-5": -5, "-1.5e1": -15,
		"999999999999999999": 999_999_999_999_999_999, "1e17": 100_000_000_000_000_000,
		"0." + strings.Repeat("0", 5000) + "1e5001": 1, "1" + strings.Repeat("0", 5000) + "e-5000": 1,
		"1.0000000000000000000000000000000000": 1,
	} {
		if got, err := session.ParseCents(literal); err != nil || got != want {
			t.Errorf("ParseCents(%.40s) = %d, %v; want %d", literal, got, err, want)
		}
	}
}

func TestParseCents_Invalid(t *testing.T) {
	for desc, literal := range map[string]string{
		"nothing": "", "a minus alone": "-", "a plus": "+1", "a fraction": "12.5", "a small fraction": "1e-1",
		"a fraction that hides in digits": "1.0000000000000000000000000000000001",
		"a leading zero":                  "01", "a minus before a leading zero": "-01", "no whole part": ".5", "no fraction": "1.",
		"no exponent": "1e", "a sign without exponent": "1e+", "two signs": "1e+-3", "two exponents": "1e1e1",
		"hex": "0x10", "an underscore": "1_000", "a comma": "1,000", "a space": " 1", "a space behind": "1 ", "NaN": "NaN",
		"infinity": "Infinity", "text": `"1000"`, "null": "null", "a digit that is not ASCII": "١", "a NUL": "1\x00",
		"nineteen digits": "1000000000000000000", "a huge number": "1e18", "a huge exponent": "1e999999999999999999999",
		"a tiny exponent": "1e-999999999999999999999", "a long number": strings.Repeat("9", 10_000),
	} {
		if got, err := session.ParseCents(literal); !errors.Is(err, session.ErrNotCents) || got != 0 {
			t.Errorf("%s: ParseCents(%.40s) = %d, %v; want 0 and ErrNotCents", desc, literal, got, err)
		}
	}
}

// Expanding this exponent would take gigabytes; the test would not end.
func TestParseCents_HugeExponent(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10_000 {
			_, _ = session.ParseCents("1e999999999")
			_, _ = session.ParseCents("1e-999999999")
			_, _ = session.ParseCents("0e999999999")
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a hostile exponent takes real work")
	}
}

func TestParseCents_Spellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cents := rapid.Int64Range(1, 999_999_999_999).Draw(t, "cents")
		sign := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		shift := rapid.IntRange(0, 30).Draw(t, "shift")
		digits := strconv.FormatInt(cents, 10)
		want := cents
		if sign == "-" {
			want = -cents
		}
		for _, unsigned := range []string{
			digits,
			digits + "." + strings.Repeat("0", shift+1),
			digits + strings.Repeat("0", shift) + fmt.Sprintf("e-%d", shift),
			"0." + strings.Repeat("0", shift) + digits + fmt.Sprintf("E+%d", shift+len(digits)),
		} {
			if got, err := session.ParseCents(sign + unsigned); err != nil || got != want {
				t.Fatalf("ParseCents(%s%s) = %d, %v; want %d", sign, unsigned, got, err, want)
			}
		}
	})
}

func FuzzParseCents(f *testing.F) {
	for _, seed := range []string{"0", "-0", "1000", "1000.0", "1e3", "100000e-2", "12.5", "01", "1e999999999", "1e18", ".", "1e+-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		got, err := session.ParseCents(literal)
		want, ok := exactly(literal)
		if ok != (err == nil) || got != want {
			t.Fatalf("ParseCents(%q) = %d, %v; math/big says %d, %v", literal, got, err, want, ok)
		}
	})
}

// exactly is ParseCents by the standard library, for literals that it can take safely.
func exactly(literal string) (cents int64, ok bool) {
	if literal == "" || !strings.ContainsRune("-0123456789", rune(literal[0])) || !json.Valid([]byte(literal)) ||
		strings.TrimSpace(literal) != literal {
		return 0, false
	}
	if _, exponent, found := strings.Cut(strings.ToLower(literal), "e"); found && len(strings.Trim(exponent, "+-0")) > 3 {
		// Beyond any amount or below any cent, unless there are only zeros in front.
		mantissa, _, _ := strings.Cut(strings.ToLower(literal), "e")
		return 0, strings.Trim(mantissa, "-.0") == ""
	}
	number, parsed := new(big.Rat).SetString(literal)
	if !parsed || !number.IsInt() || len(new(big.Int).Abs(number.Num()).String()) > 18 {
		return 0, false
	}
	return number.Num().Int64(), true
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestParseIdempotencyKey(t *testing.T) {
	for header, key := range map[string]string{
		"order-1001":                         "order-1001",
		`"order-1001"`:                       "order-1001",
		"a":                                  "a",
		"~!@#$%^&*()'":                       "~!@#$%^&*()'",
		`8"x11"`:                             `8"x11"`,
		strings.Repeat("k", 255):             strings.Repeat("k", 255),
		`"` + strings.Repeat("k", 255) + `"`: strings.Repeat("k", 255),
	} {
		parsed, err := session.ParseIdempotencyKey(header)
		if err != nil {
			t.Errorf("%.40s: %v", header, err)
			continue
		}
		if parsed.IsZero() || parsed.Hash() != sha256Hex(key) {
			t.Errorf("%.40s: Hash is not of the key itself", header)
		}
	}
}

func TestParseIdempotencyKey_Invalid(t *testing.T) {
	for desc, header := range map[string]string{
		"nothing":                    "",
		"a quote":                    `"`,
		"nothing in quotes":          `""`,
		"a quote that is not closed": `"order`,
		"a quote inside quotes":      `"or"der"`,
		"an escape":                  `"or\"der"`,
		"a backslash in quotes":      `"or\der"`,
		"text behind the quotes":     `"order"; a=1`,
		"a space":                    "order 1001",
		"a tab":                      "order\t1001",
		"a NUL":                      "order\x00",
		"a DEL":                      "order\x7f",
		"a newline":                  "order\n",
		"a letter that is not ASCII": "commandé",
		"256 characters":             strings.Repeat("k", 256),
		"256 characters in quotes":   `"` + strings.Repeat("k", 256) + `"`,
	} {
		key, err := session.ParseIdempotencyKey(header)
		if !errors.Is(err, session.ErrMalformedIdempotencyKey) || !key.IsZero() {
			t.Errorf("%s: error %v, want ErrMalformedIdempotencyKey", desc, err)
		}
	}
}

func TestIdempotencyKey_Zero(t *testing.T) {
	if hash := (session.IdempotencyKey{}).Hash(); hash != "" {
		t.Errorf("Hash of none = %s", hash)
	}
}

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "order-1001", `"order-1001"`, `"`, `""`, `"a"b"`, "a b", strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := session.ParseIdempotencyKey(header)
		if err != nil {
			if !errors.Is(err, session.ErrMalformedIdempotencyKey) || !key.IsZero() {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		// What is accepted bare is the same key in quotes, unless quoting would need an escape.
		if !strings.ContainsAny(header, `"\`) {
			quoted, err := session.ParseIdempotencyKey(`"` + header + `"`)
			if err != nil || quoted != key {
				t.Fatalf("%q and its quoted form differ: %v", header, err)
			}
		}
		if len(header) > 257 || len(key.Hash()) != 64 {
			t.Fatalf("%q was accepted", header)
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

func BenchmarkIdempotencyKey(b *testing.B) {
	for _, header := range []struct{ name, value string }{
		{"form=bare", "till-1-000000004711"}, {"form=quoted", `"till-1-000000004711"`},
	} {
		b.Run(header.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key, err := session.ParseIdempotencyKey(header.value)
				if err != nil {
					b.Fatal(err)
				}
				_ = key.Hash()
			}
		})
	}
}
