package session

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Record is what never changes of a session and may be exposed to everybody its merchant is exposed to. It is stored as
//
//	<merchant id> <amountCents> <JSON of the rest>
//
// as scripts read the first two words. The names in the JSON are short: the record is in memory with every session and event.
type Record struct {
	MerchantID string `json:"-"`
	// MerchantName is the name payers see.
	MerchantName string `json:"n"`
	// LifetimeMillis is from creation to expiry.
	LifetimeMillis int64 `json:"l"`
	Charge
}

// Append appends the record as it is stored.
func (r *Record) Append(to []byte) ([]byte, error) {
	to = append(append(to, r.MerchantID...), ' ')
	to = append(strconv.AppendInt(to, r.AmountCents, 10), ' ')
	rest, err := json.Marshal(r)
	return append(to, rest...), err
}

// ParseRecord reads a record as it is stored; false: it is none.
func ParseRecord(text string) (Record, bool) {
	merchantID, text, _ := strings.Cut(text, " ")
	amount, text, found := strings.Cut(text, " ")
	var record Record
	cents, err := strconv.ParseInt(amount, 10, 64)
	if !found || merchantID == "" || err != nil || cents < 0 || json.Unmarshal([]byte(text), &record) != nil || record.LifetimeMillis <= 0 {
		return Record{}, false
	}
	record.MerchantID, record.AmountCents = merchantID, cents
	return record, true
}

// Complete fills in what the record says of a session whose ExpiresAt is known.
func (r *Record) Complete(s *Session) {
	email := s.Charge.CustomerEmail
	s.MerchantID, s.MerchantName, s.Charge = r.MerchantID, r.MerchantName, r.Charge
	s.Charge.CustomerEmail = email
	s.CreatedAt = s.ExpiresAt.Add(-time.Duration(r.LifetimeMillis) * time.Millisecond)
}
