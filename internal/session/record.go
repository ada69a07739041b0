package session

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Record is what never changes of a session and may be exposed to everybody its merchant is exposed to. It is stored as
//
//	<account> <amountCents> <JSON of the rest>
//
// as scripts read the first two words. The names in the JSON are short: the record is in memory with every session and event.
type Record struct {
	MerchantID string `json:"-"`
	// TestMode: no real money is meant. It is in the account, and in the session's ID.
	TestMode bool `json:"-"`
	// MerchantName is the name payers see.
	MerchantName string `json:"n"`
	// Currency is the ISO 4217 code of all amounts. DefaultCurrency is not stored.
	Currency string `json:"c,omitempty"`
	// LifetimeMillis is from creation to expiry.
	LifetimeMillis int64 `json:"l"`
	Charge
}

// DefaultCurrency is the currency of a record that names none.
const DefaultCurrency = "USD"

// Append appends the record as it is stored. It writes what json.Marshal would, in a fifth of the time; a create needs one.
func (r *Record) Append(to []byte) []byte {
	to = append(to, r.MerchantID...)
	if r.TestMode {
		to = append(to, testAccount...)
	}
	to = append(to, ' ')
	to = append(strconv.AppendInt(to, r.AmountCents, 10), ' ')
	to = appendText(append(to, `{"n":`...), r.MerchantName)
	if r.Currency != DefaultCurrency && r.Currency != "" {
		to = appendText(append(to, `,"c":`...), r.Currency)
	}
	to = strconv.AppendInt(append(to, `,"l":`...), r.LifetimeMillis, 10)
	if r.OrderRef != "" {
		to = appendText(append(to, `,"o":`...), r.OrderRef)
	}
	if r.TaxCents != nil {
		to = strconv.AppendInt(append(to, `,"t":`...), *r.TaxCents, 10)
	}
	if r.TipCents != nil {
		to = strconv.AppendInt(append(to, `,"p":`...), *r.TipCents, 10)
	}
	return append(to, '}')
}

// appendText appends a JSON string.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			escaped, _ := json.Marshal(text) //nolint:errchkjson // of a string, it never fails
			return append(to, escaped...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

// ParseRecord reads a record as it is stored; false: it is none.
func ParseRecord(text string) (Record, bool) {
	account, text, _ := strings.Cut(text, " ")
	merchantID, testMode := ParseAccount(account)
	amount, text, found := strings.Cut(text, " ")
	cents, err := strconv.ParseInt(amount, 10, 64)
	if !found || merchantID == "" || err != nil || cents < 0 {
		return Record{}, false
	}
	record, ok := parsePlain(text)
	if !ok {
		record, ok = parseJSON(text)
	}
	if !ok || record.LifetimeMillis <= 0 {
		return Record{}, false
	}
	record.MerchantID, record.TestMode, record.AmountCents = merchantID, testMode, cents
	if record.Currency == "" {
		record.Currency = DefaultCurrency
	}
	return record, true
}

func parseJSON(text string) (Record, bool) {
	var record Record
	err := json.Unmarshal([]byte(text), &record)
	return record, err == nil
}

// parsePlain reads the JSON that Append writes of most sessions. It is a short cut of parseJSON, which costs a request more than all
// else that is done with the record; false: it is left to that.
func parsePlain(rest string) (record Record, ok bool) {
	for separator := byte('{'); rest != "}"; separator = ',' {
		const start = len(`{"n":`)
		if len(rest) <= start || rest[0] != separator || rest[1] != '"' || rest[3:start] != `":` {
			return Record{}, false
		}
		name, value := rest[2], rest[start:]
		text, isText := strings.CutPrefix(value, `"`)
		end := strings.IndexAny(value, ",}")
		if isText {
			end = strings.IndexAny(text, "\"\\")
		}
		switch {
		case end < 0:
			return Record{}, false
		case !isText:
			ok, rest = record.setNumber(name, value[:end]), value[end:]
		default:
			ok, rest = text[end] == '"' && record.setText(name, text[:end]), text[end+1:]
		}
		if !ok {
			return Record{}, false
		}
	}
	return record, ok
}

func (r *Record) setText(name byte, text string) bool {
	switch name {
	case 'n':
		r.MerchantName = text
	case 'c':
		r.Currency = text
	case 'o':
		r.OrderRef = text
	default:
		return false
	}
	return true
}

func (r *Record) setNumber(name byte, digits string) bool {
	number, err := strconv.ParseInt(digits, 10, 64)
	switch name {
	case 'l':
		r.LifetimeMillis = number
	case 't':
		r.TaxCents = new(number)
	case 'p':
		r.TipCents = new(number)
	default:
		return false
	}
	return err == nil
}

// Complete fills in what the record says of a session whose ExpiresAt is known.
func (r *Record) Complete(s *Session) {
	email := s.Charge.CustomerEmail
	s.MerchantID, s.MerchantName, s.Charge = r.MerchantID, r.MerchantName, r.Charge
	s.Charge.CustomerEmail = email
	s.CreatedAt = s.ExpiresAt.Add(-time.Duration(r.LifetimeMillis) * time.Millisecond)
}
