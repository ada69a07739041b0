package session

import (
	"crypto/sha256"
	"encoding/hex"
	"net/mail"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxAmountCents is the largest amount of any kind, in cents: 100,000 of the currency's unit.
const MaxAmountCents = 10_000_000

const (
	maxOrderRefCharacters  = 255
	maxCustomerEmailLength = 254 // RFC 5321: a path is 256 octets, with its angle brackets
)

// The rules of the fields, worded to follow the field's name.
const (
	AmountRule        = "must be an integer from 1 to 10000000"
	TaxRule           = "must be an integer from 0 to 10000000"
	TipRule           = TaxRule
	OrderRefRule      = "must be a string of at most 255 characters without control characters"
	CustomerEmailRule = "must be a string with one e-mail address of at most 254 characters, without a display name"
)

// FieldError says which field of a request breaks its rule, in the words of the caller's JSON.
// It never quotes the value.
type FieldError struct{ Field, Rule string }

func (e *FieldError) Error() string { return e.Field + " " + e.Rule }

// Charge is what a till asks for. Amounts are in cents. The JSON names are those of Record.
type Charge struct {
	AmountCents int64 `json:"-"`
	// OrderRef is the merchant's own reference; empty: none.
	OrderRef string `json:"o,omitempty"`
	// TaxCents and TipCents are informational; nil: not given.
	TaxCents *int64 `json:"t,omitempty"`
	TipCents *int64 `json:"p,omitempty"`
	// CustomerEmail is where a receipt goes; empty: none. It is in no Record, and so in no event.
	CustomerEmail string `json:"-"`
}

// Validate checks every field; the error is a *FieldError for the first that breaks its rule.
func (c Charge) Validate() error {
	switch {
	case c.AmountCents < 1 || c.AmountCents > MaxAmountCents:
		return &FieldError{Field: "amountCents", Rule: AmountRule}
	case !validOrderRef(c.OrderRef):
		return &FieldError{Field: "orderRef", Rule: OrderRefRule}
	case !validPart(c.TaxCents):
		return &FieldError{Field: "taxCents", Rule: TaxRule}
	case !validPart(c.TipCents):
		return &FieldError{Field: "tipCents", Rule: TipRule}
	case c.CustomerEmail != "" && !validEmail(c.CustomerEmail):
		return &FieldError{Field: "customerEmail", Rule: CustomerEmailRule}
	}
	return nil
}

// Fingerprint returns 32 hex digits that are equal for equal charges and for no others. It is kept
// beside the Idempotency-Key, so its encoding must not change while keys are remembered.
func (c Charge) Fingerprint() string {
	var room [128]byte // enough for most
	encoded := strconv.AppendInt(room[:0], c.AmountCents, 10)
	encoded = strconv.AppendQuote(append(encoded, ' '), c.OrderRef)
	encoded = appendPart(append(encoded, ' '), c.TaxCents)
	encoded = appendPart(append(encoded, ' '), c.TipCents)
	encoded = strconv.AppendQuote(append(encoded, ' '), c.CustomerEmail)
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

// validEmail accepts an addr-spec of RFC 5322 as it stands. Comparing the parsed address with the
// text refuses display names, angle brackets, comments, quoting and surrounding space.
func validEmail(s string) bool {
	if len(s) > maxCustomerEmailLength || !utf8.ValidString(s) {
		return false
	}
	address, err := mail.ParseAddress(s)
	return err == nil && address.Name == "" && address.Address == s
}
