package feed

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrMalformedCursor says that a text is no cursor. It never quotes the text.
	ErrMalformedCursor = errors.New("not a cursor of this feed")
	// ErrCursorExpired says that events after the cursor may not be kept any more.
	ErrCursorExpired = errors.New("events after the cursor are not kept any more")
)

// LostError says that the event of a cursor is lost, with all that happened after it and before a failover of Redis.
type LostError struct {
	// Survivor is a cursor of the last event before it that is still there, or of the beginning of the feed.
	Survivor Cursor
}

func (LostError) Error() string { return "the event of the cursor was lost in a failover of Redis" }

// EntryID is the place of an event in the feed, and when Redis recorded it. The zero EntryID is before all of them.
type EntryID struct{ Millis, Seq uint64 }

// ParseEntryID reads the id of an entry of a Redis stream.
func ParseEntryID(text string) (EntryID, bool) {
	millis, seq, _ := strings.Cut(text, "-")
	var id EntryID
	var millisErr, seqErr error
	id.Millis, millisErr = strconv.ParseUint(millis, 10, 63)
	id.Seq, seqErr = strconv.ParseUint(seq, 10, 64)
	return id, millisErr == nil && seqErr == nil && id.String() == text
}

// String returns the id as Redis has it.
func (id EntryID) String() string {
	return strconv.FormatUint(id.Millis, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// RecordedAt is when Redis recorded the entry.
func (id EntryID) RecordedAt() time.Time { return time.UnixMilli(int64(id.Millis)).UTC() } //nolint:gosec // ParseEntryID bounds it

// Cursor is how far a consumer has read the feed of an account.
type Cursor struct {
	Account string
	// Entry is the last one that was read; zero: none was.
	Entry EntryID
	// Checksum is that of what was stored there; empty: unknown. Redis gives the id of an entry that a failover lost to another one if its
	// clock is behind.
	Checksum string
	// HeadAt is when nothing more was to be read after it, by the clock of Redis; zero: there was more.
	HeadAt time.Time
}

const checksumLength = 8

// Checksum is that of an event as it is stored.
func Checksum(event string) string {
	return fmt.Sprintf("%0*x", checksumLength, crc32.ChecksumIEEE([]byte(event)))
}

// maxCursorLength is more than any cursor has.
const maxCursorLength = 128

// String returns the cursor as consumers keep it. They need not know what is in it.
func (c Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(c.plain()))
}

func (c Cursor) plain() string {
	text := c.Account + " " + c.Entry.String()
	if c.Checksum != "" {
		text += "/" + c.Checksum
	}
	if !c.HeadAt.IsZero() {
		text += " " + strconv.FormatInt(c.HeadAt.UnixMilli(), 10)
	}
	return text
}

// ParseCursor reads a cursor of the account as String returns it, of this release or of another one. Any other text, and a cursor of another account, is ErrMalformedCursor.
func ParseCursor(account, text string) (Cursor, error) {
	if len(text) > maxCursorLength {
		return Cursor{}, ErrMalformedCursor
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodeToString(plain) != text { // the decoder passes over line breaks
		return Cursor{}, ErrMalformedCursor
	}
	cursor := Cursor{Account: account}
	known, _, _ := strings.Cut(string(plain), "\t")
	owner, rest, _ := strings.Cut(known, " ")
	entry, head, reachedHead := strings.Cut(rest, " ")
	entry, cursor.Checksum, _ = strings.Cut(entry, "/")
	var ok bool
	if cursor.Entry, ok = ParseEntryID(entry); !ok || owner != account || len(cursor.Checksum) > checksumLength {
		return Cursor{}, ErrMalformedCursor
	}
	if reachedHead {
		millis, err := strconv.ParseInt(head, 10, 64)
		if err != nil || millis < 0 {
			return Cursor{}, ErrMalformedCursor
		}
		cursor.HeadAt = time.UnixMilli(millis).UTC()
	}
	if cursor.plain() != known {
		return Cursor{}, ErrMalformedCursor
	}
	return cursor, nil
}

// Kept is what a feed holds of what a cursor has read.
type Kept struct {
	// Since is the earliest recording that is still shown.
	Since time.Time
	// Entry: the cursor's entry is there.
	Entry bool
	// Full: the feed is at the bound of its length, so entries after Since may have been dropped.
	Full bool
	// Oldest is the first entry that is there, Before the last one before the cursor's; zero: there is none.
	Oldest, Before EntryID
}

// Check decides whether a consumer may go on after its cursor without missing an event. The error is ErrCursorExpired or a LostError.
func (c Cursor) Check(kept Kept) error {
	atHead := !c.HeadAt.Before(kept.Since) // nothing that came after the cursor is as old as what was dropped
	switch {
	case kept.Entry:
		return nil
	case c.Entry == EntryID{} && c.HeadAt.IsZero():
		return nil // the beginning
	case c.Entry.RecordedAt().Before(kept.Since) && atHead && !kept.droppedAfter(c.HeadAt):
		return nil
	case c.Entry.RecordedAt().Before(kept.Since), kept.Full && kept.Before == EntryID{}:
		return ErrCursorExpired
	case kept.Before.RecordedAt().Before(kept.Since):
		return LostError{Survivor: Cursor{Account: c.Account}}
	default:
		return LostError{Survivor: Cursor{Account: c.Account, Entry: kept.Before}}
	}
}

// droppedAfter reports whether an entry recorded after a time may have been dropped because of the feed's length. Then the feed is still at
// its bound: what is dropped for its age is older.
func (k Kept) droppedAfter(at time.Time) bool {
	return k.Full && k.Oldest.RecordedAt().After(at)
}
