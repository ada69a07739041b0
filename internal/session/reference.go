package session

import (
	"strings"
	"time"
)

// Reference names a paid session on its receipt: short enough to read aloud, and enough for its merchant to find the session. It says when the
// session was paid, to the second, and tells sessions of one second apart, but for one in 32768. So no index is kept for it.
//
// Its bits, the highest first, are 15 of a hash of the session's id and 25 of the time, which begin again after 388 days: longer than the end of
// a session is listed.
type Reference uint64

const (
	referenceLength   = 8 // characters of 5 bits
	referenceTimeBits = 25
	referenceHashBits = referenceLength*5 - referenceTimeBits

	// referencePeriod is after how many seconds the time in references begins again.
	referencePeriod = 1 << referenceTimeBits
)

// crockford are the digits of Crockford's base32. None is taken for another one: people write O for 0, and I or L for 1.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

var uncrockford = strings.NewReplacer("O", "0", "I", "1", "L", "1", "-", "", " ", "")

// NewReference returns the reference of a session that was paid at a time.
func NewReference(id ID, paidAt time.Time) Reference {
	hash := fnv1a(id.text)
	return Reference(hash>>(32-referenceHashBits))<<referenceTimeBits | Reference(paidAt.Unix()&(referencePeriod-1))
}

// ParseReference reads a reference as people write it: in capitals or not, with or without the hyphen.
func ParseReference(text string) (Reference, bool) {
	digits := uncrockford.Replace(strings.ToUpper(strings.TrimSpace(text)))
	if len(text) > 4*referenceLength || len(digits) != referenceLength {
		return 0, false
	}
	var reference Reference
	for _, digit := range []byte(digits) {
		value := strings.IndexByte(crockford, digit)
		if value < 0 {
			return 0, false
		}
		reference = reference<<5 | Reference(value)
	}
	return reference, true
}

// String returns it as receipts have it, such as "PHPG-2J6W". The hyphen keeps a spreadsheet from taking it for a number.
func (r Reference) String() string {
	var text [referenceLength]byte
	for i := range text {
		text[len(text)-1-i] = crockford[r>>(5*i)&31]
	}
	return string(text[:referenceLength/2]) + "-" + string(text[referenceLength/2:])
}

// PaidAt returns the second in which the session was paid: the last one that is not after now. It may be a day after, as Redis and its reader have
// clocks of their own.
func (r Reference) PaidAt(now time.Time) time.Time {
	latest := now.Add(24 * time.Hour).Unix()
	at := latest&^(referencePeriod-1) | int64(r&(referencePeriod-1))
	if at > latest {
		at -= referencePeriod
	}
	return time.Unix(at, 0).UTC()
}

// Reference returns the reference on the session's receipt; false: the session is not paid, so it has none.
func (s *Session) Reference() (Reference, bool) {
	if s.Status != Completed {
		return 0, false
	}
	return NewReference(s.ID, s.EndedAt), true
}
