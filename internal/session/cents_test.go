package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

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
