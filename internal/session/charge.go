package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxAmountCents is the largest amount of a charge, in cents: 100,000 of most currencies' unit.
const MaxAmountCents = 10_000_000

const maxOrderRefCharacters = 255

// The rules of the fields, worded to follow the field's name.
const (
	AmountRule        = "must be an integer from 1 to 10000000"
	TaxRule           = "must be an integer from 0 to 10000000"
	TipRule           = TaxRule
	OrderRefRule      = "must be a string of at most 255 characters without control characters"
	DescriptionRule   = "must be a string of at most 140 characters that payers can see, on one line, without characters that change the text direction"
	ReturnURLRule     = "must be an https URL of at most 512 visible ASCII characters, without user info, and with braces only in {sessionId}"
	CustomerEmailRule = "must be a string"
)

// FieldError says which field of a request breaks its rule, in the words of the caller's JSON.
// It never quotes the value.
type FieldError struct{ Field, Rule string }

func (e *FieldError) Error() string { return e.Field + " " + e.Rule }

// Charge is what a till asks for. Amounts are in cents.
type Charge struct {
	AmountCents int64
	// OrderRef is the merchant's own reference; empty: none.
	OrderRef string
	// Description is what the payer reads about the charge; empty: nothing.
	Description string
	// ReturnURL is where the page of the session leads after its end, if AllowsReturnURL; empty: the
	// charge has none.
	ReturnURL string
	// TaxCents and TipCents are informational; nil: not given.
	TaxCents *int64
	TipCents *int64
	// CustomerEmail is where a receipt goes, as it was typed, without the white space around it; empty: none. Package
	// mailbox has its rules: they refuse no charge. It is in no Record, and so in no event.
	CustomerEmail string
}

// Validate checks every field but CustomerEmail; the error is a *FieldError for the first that breaks its rule.
func (c Charge) Validate() error {
	switch {
	case c.AmountCents < 1 || c.AmountCents > MaxAmountCents:
		return &FieldError{Field: "amountCents", Rule: AmountRule}
	case !validOrderRef(c.OrderRef):
		return &FieldError{Field: "orderRef", Rule: OrderRefRule}
	case c.Description != "" && !validDescription(c.Description):
		return &FieldError{Field: "description", Rule: DescriptionRule}
	case c.ReturnURL != "" && !validReturnURL(c.ReturnURL):
		return &FieldError{Field: "returnUrl", Rule: ReturnURLRule}
	case !validPart(c.TaxCents):
		return &FieldError{Field: "taxCents", Rule: TaxRule}
	case !validPart(c.TipCents):
		return &FieldError{Field: "tipCents", Rule: TipRule}
	}
	return nil
}

// Fingerprint returns 32 hex digits that are equal for equal charges and for no others. It is kept
// beside the Idempotency-Key, so its encoding must not change while keys are remembered: fields that
// were added later are in it only if they are given.
func (c Charge) Fingerprint() string {
	var room [128]byte // enough for most
	encoded := strconv.AppendInt(room[:0], c.AmountCents, 10)
	encoded = strconv.AppendQuote(append(encoded, ' '), c.OrderRef)
	encoded = appendPart(append(encoded, ' '), c.TaxCents)
	encoded = appendPart(append(encoded, ' '), c.TipCents)
	encoded = strconv.AppendQuote(append(encoded, ' '), c.CustomerEmail)
	if c.Description != "" {
		encoded = strconv.AppendQuote(append(encoded, " description "...), c.Description)
	}
	if c.ReturnURL != "" {
		encoded = strconv.AppendQuote(append(encoded, " returnUrl "...), c.ReturnURL)
	}
	sum := sha256.Sum256(encoded)
	var digits [32]byte
	hex.Encode(digits[:], sum[:16])
	return string(digits[:])
}

func appendPart(encoded []byte, cents *int64) []byte {
	if cents == nil {
		return append(encoded, '-') // not given is not the same as 0
	}
	return strconv.AppendInt(encoded, *cents, 10)
}

func validPart(cents *int64) bool {
	return cents == nil || (*cents >= 0 && *cents <= MaxAmountCents)
}

func validOrderRef(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxOrderRefCharacters &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

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

const maxIdempotencyKeyLength = 255

// ErrMalformedIdempotencyKey says that a header does not hold an Idempotency-Key.
var ErrMalformedIdempotencyKey = errors.New("must be 1 to 255 visible ASCII characters, bare or in double quotes")

// IdempotencyKey names one attempt to charge, chosen by the merchant and repeated with each retry.
// The zero IdempotencyKey is none.
type IdempotencyKey struct{ value string }

// ParseIdempotencyKey reads the value of the header, surrounding spaces already removed: 1 to 255
// visible ASCII characters, bare, or in double quotes that are not part of the key (the structured
// string of draft-ietf-httpapi-idempotency-key-header). Inside quotes, quotes and backslashes are
// refused rather than unescaped, so that no key has two spellings. The error is
// ErrMalformedIdempotencyKey, also for an empty header.
func ParseIdempotencyKey(header string) (IdempotencyKey, error) {
	value := header
	if strings.HasPrefix(header, `"`) {
		inner, closed := strings.CutSuffix(header[1:], `"`)
		if !closed || strings.ContainsAny(inner, `"\`) {
			return IdempotencyKey{}, ErrMalformedIdempotencyKey
		}
		value = inner
	}
	if value == "" || len(value) > maxIdempotencyKeyLength {
		return IdempotencyKey{}, ErrMalformedIdempotencyKey
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return IdempotencyKey{}, ErrMalformedIdempotencyKey
		}
	}
	return IdempotencyKey{value}, nil
}

// IsZero reports whether there is no key.
func (k IdempotencyKey) IsZero() bool { return k.value == "" }

// Hash returns the SHA-256 of the key as 64 lower-case hex digits, and the empty string for none.
// It is what is stored: merchants put order numbers and worse into these keys.
func (k IdempotencyKey) Hash() string {
	if k.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(k.value))
	return hex.EncodeToString(sum[:])
}
