package session

import (
	"crypto/sha256"
	"encoding/hex"
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
