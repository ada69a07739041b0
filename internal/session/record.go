package session

import (
	"strconv"
	"strings"
	"time"
)

// Record is what never changes of a session and may be exposed to everybody its merchant is exposed to. It is stored as the values of
// recordFields in their order, each after a tab but the first.
type Record struct {
	MerchantID string
	// TestMode: no real money is meant. It is in the account, and in the session's ID.
	TestMode bool
	// MerchantName is the name payers see.
	MerchantName string
	// KeyID is of the API key that created the session.
	KeyID string
	// Currency is the ISO 4217 code of all amounts. DefaultCurrency is not stored.
	Currency string
	// LifetimeMillis is from creation to expiry.
	LifetimeMillis int64
	Charge
}

// DefaultCurrency is the currency of a record that names none.
const DefaultCurrency = "USD"

// The places of recordFields. Scripts read the first, and those that are exported.
const (
	recordAccount = iota
	RecordAmount
	recordLifetime
	recordKeyID
	RecordCurrency
	recordTax
	recordTip
	recordOrderRef
	recordMerchantName
	recordDescription
	recordReturnURL
)

// requiredRecordFields is how many fields every stored record has, as many as the first release wrote. It never changes.
const requiredRecordFields = recordMerchantName + 1

// recordFields are the fields of a stored record. A later release appends fields and changes none: an older reader ignores what
// follows the fields that it knows, and a newer one reads an empty text for an appended field that a shorter record lacks.
// docs/design/redis.md has the rule of all stored texts.
var recordFields = [...]recordField{
	recordAccount: {
		func(r *Record, to []byte) []byte { return append(to, Account(r.MerchantID, r.TestMode)...) },
		func(r *Record, text string) bool {
			r.MerchantID, r.TestMode = ParseAccount(text)
			return r.MerchantID != ""
		},
	},
	RecordAmount:   numberField(func(r *Record) *int64 { return &r.AmountCents }),
	recordLifetime: numberField(func(r *Record) *int64 { return &r.LifetimeMillis }),
	recordKeyID:    textField(func(r *Record) *string { return &r.KeyID }),
	RecordCurrency: {
		func(r *Record, to []byte) []byte {
			return append(to, strings.TrimPrefix(r.Currency, DefaultCurrency)...)
		},
		func(r *Record, text string) bool {
			if r.Currency = text; text == "" {
				r.Currency = DefaultCurrency
			}
			return true
		},
	},
	recordTax:          optionalField(func(r *Record) **int64 { return &r.TaxCents }),
	recordTip:          optionalField(func(r *Record) **int64 { return &r.TipCents }),
	recordOrderRef:     textField(func(r *Record) *string { return &r.OrderRef }),
	recordMerchantName: textField(func(r *Record) *string { return &r.MerchantName }),
	recordDescription:  textField(func(r *Record) *string { return &r.Description }),
	recordReturnURL:    textField(func(r *Record) *string { return &r.ReturnURL }),
}

// recordField writes and reads one value of a record. read reports whether the text is one.
type recordField struct {
	write func(*Record, []byte) []byte
	read  func(*Record, string) bool
}

func numberField(at func(*Record) *int64) recordField {
	return recordField{
		func(r *Record, to []byte) []byte { return strconv.AppendInt(to, *at(r), 10) },
		func(r *Record, text string) (ok bool) {
			*at(r), ok = parseCount(text)
			return ok
		},
	}
}

func optionalField(at func(*Record) **int64) recordField {
	return recordField{
		func(r *Record, to []byte) []byte {
			if number := *at(r); number != nil {
				return strconv.AppendInt(to, *number, 10)
			}
			return to
		},
		func(r *Record, text string) bool {
			if text == "" {
				return true
			}
			number, ok := parseCount(text)
			*at(r) = &number
			return ok
		},
	}
}

func parseCount(text string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && number >= 0
}

var (
	escapeTab   = strings.NewReplacer("%", "%25", "\t", "%09")
	unescapeTab = strings.NewReplacer("%25", "%", "%09", "\t")
)

// EscapeTab returns a text without a tab, to store it among others.
func EscapeTab(text string) string { return escapeTab.Replace(text) }

// UnescapeTab is the inverse of EscapeTab.
func UnescapeTab(text string) string {
	if strings.Contains(text, "%") {
		text = unescapeTab.Replace(text)
	}
	return text
}

func textField(at func(*Record) *string) recordField {
	return recordField{
		func(r *Record, to []byte) []byte { return append(to, EscapeTab(*at(r))...) },
		func(r *Record, text string) bool {
			*at(r) = UnescapeTab(text)
			return true
		},
	}
}

// Append appends the record as it is stored.
func (r *Record) Append(to []byte) []byte {
	for i := range recordFields {
		if i > 0 {
			to = append(to, '\t')
		}
		to = recordFields[i].write(r, to)
	}
	return to
}

// ParseRecord reads a record as a release has stored it, this one or another; false: it is none.
func ParseRecord(text string) (Record, bool) { return parseRecord(recordFields[:], text) }

func parseRecord(fields []recordField, text string) (Record, bool) {
	var record Record
	more := true
	for i := range fields {
		if !more && i < requiredRecordFields {
			return Record{}, false
		}
		var value string
		value, text, more = strings.Cut(text, "\t")
		if !fields[i].read(&record, value) {
			return Record{}, false
		}
	}
	return record, record.LifetimeMillis > 0
}

// Complete fills in what the record says of a session whose ExpiresAt is known.
func (r *Record) Complete(s *Session) {
	email := s.Charge.CustomerEmail
	s.MerchantID, s.MerchantName, s.KeyID, s.Currency, s.Charge = r.MerchantID, r.MerchantName, r.KeyID, r.Currency, r.Charge
	s.Charge.CustomerEmail = email
	s.CreatedAt = s.ExpiresAt.Add(-time.Duration(r.LifetimeMillis) * time.Millisecond)
}
