package session

import (
	"errors"
	"strconv"
	"strings"
)

// ErrNotCents says that a literal is not a whole number of cents this program can hold.
var ErrNotCents = errors.New("not an integer number of cents")

// ParseCents reads a JSON number literal (RFC 8259) that is exactly an integer, however it is
// spelt: 1000, 1000.0, 1e3 and 100000e-2 are the same. Anything else, and an integer of more than
// 18 digits, is ErrNotCents. The work is bounded by the literal's length: a huge exponent is
// compared, never expanded.
func ParseCents(literal string) (int64, error) {
	const plain = 15 // digits; most amounts are that, and are as they stand
	if len(literal) <= plain && isDigits(literal) && literal[0] != '0' {
		return strconv.ParseInt(literal, 10, 64)
	}
	unsigned, negative := strings.CutPrefix(literal, "-")
	mantissa, exponentText, hasExponent := cutExponent(unsigned)
	whole, fraction, hasFraction := strings.Cut(mantissa, ".")
	if !isDigits(whole) || (len(whole) > 1 && whole[0] == '0') || (hasFraction && !isDigits(fraction)) {
		return 0, ErrNotCents
	}
	exponent := 0
	if hasExponent {
		var ok bool
		if exponent, ok = parseExponent(exponentText); !ok {
			return 0, ErrNotCents
		}
	}

	// The number is digits * 10^scale, and digits do not end in 0 unless they are none.
	all := strings.TrimLeft(whole+fraction, "0")
	digits := strings.TrimRight(all, "0")
	scale := exponent - len(fraction) + len(all) - len(digits)
	if digits == "" {
		return 0, nil
	}
	const maxDigits = 18
	if scale < 0 || scale > maxDigits || len(digits)+scale > maxDigits {
		return 0, ErrNotCents
	}
	value, err := strconv.ParseInt(digits+strings.Repeat("0", scale), 10, 64)
	if err != nil {
		return 0, ErrNotCents
	}
	if negative {
		value = -value
	}
	return value, nil
}

func cutExponent(s string) (mantissa, exponent string, found bool) {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// parseExponent reads an optional sign and digits. An exponent no literal could make up for with
// its own digits is cut off at that bound, which keeps its sign and avoids overflow.
func parseExponent(s string) (exponent int, ok bool) {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || !isDigits(digits) {
		return 0, false
	}
	const bound = 1 << 40
	exponent, err := strconv.Atoi(digits)
	if err != nil || exponent > bound {
		exponent = bound
	}
	if s[0] == '-' {
		exponent = -exponent
	}
	return exponent, true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
