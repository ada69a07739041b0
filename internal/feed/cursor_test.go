package feed_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/feed"
)

const account = merchantID + ".test"

func entry(at time.Time, seq uint64) feed.EntryID {
	return feed.EntryID{Millis: uint64(at.UnixMilli()), Seq: seq}
}

func TestParseCursor_RoundTrip(t *testing.T) {
	for name, want := range map[string]feed.Cursor{
		"begin":             {Account: account},
		"begin of no event": {Account: account, HeadAt: created},
		"entry":             {Account: account, Entry: entry(created, 7)},
		"checked entry":     {Account: account, Entry: entry(created, 7), Checksum: feed.Checksum("an event")},
		"longest":           {Account: account, Entry: feed.EntryID{Millis: 1<<63 - 1, Seq: 1<<64 - 1}, Checksum: feed.Checksum(""), HeadAt: time.UnixMilli(1<<63 - 1).UTC()},
		"head":              {Account: account, Entry: entry(created, 0), HeadAt: ended},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := feed.ParseCursor(account, want.String())
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A consumer keeps its cursor over an upgrade and a rollback: an older release ignores what a later one appends.
func TestParseCursor_Grown(t *testing.T) {
	for _, want := range []feed.Cursor{
		{Account: account}, {Account: account, Entry: feed.EntryID{Millis: 5, Seq: 1}, Checksum: "0123abcd"},
		{Account: account, Entry: feed.EntryID{Millis: 5}, HeadAt: time.UnixMilli(7).UTC()},
	} {
		plain, err := base64.RawURLEncoding.DecodeString(want.String())
		if err != nil {
			t.Fatal(err)
		}
		grown := base64.RawURLEncoding.EncodeToString(append(plain, "\tlater 7"...))
		if got, err := feed.ParseCursor(account, grown); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func TestParseCursor_Malformed(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	for name, text := range map[string]string{
		"empty":            "",
		"plain":            account + " 1-1",
		"another account":  feed.Cursor{Account: merchantID, Entry: entry(created, 1)}.String(),
		"no account":       encode([]byte(" 1-1")),
		"no entry":         encode([]byte(account)),
		"a word":           encode([]byte(account + " first")),
		"no sequence":      encode([]byte(account + " 1")),
		"a leading zero":   encode([]byte(account + " 01-1")),
		"a range":          encode([]byte(account + " (1-1")),
		"negative":         encode([]byte(account + " -1-1")),
		"too large":        encode([]byte(account + " 9223372036854775808-0")),
		"no checksum":      encode([]byte(account + " 1-1/")),
		"a long checksum":  encode([]byte(account + " 1-1/123456789")),
		"head is no time":  encode([]byte(account + " 1-1 now")),
		"head is negative": encode([]byte(account + " 1-1 -5")),
		"head is empty":    encode([]byte(account + " 1-1 ")),
		"something after":  encode([]byte(account + " 1-1 5 5")),
		"padded":           feed.Cursor{Account: account}.String() + "==",
		"a line break":     feed.Cursor{Account: account}.String() + "\n",
		"very long":        strings.Repeat("A", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := feed.ParseCursor(account, text); !errors.Is(err, feed.ErrMalformedCursor) || got != (feed.Cursor{}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// FuzzParseCursor holds that what is accepted is of the account, and is written in one way only.
func FuzzParseCursor(f *testing.F) {
	for _, cursor := range []feed.Cursor{
		{Account: account}, {Account: account, Entry: entry(created, 7), HeadAt: ended}, {Account: merchantID, Entry: entry(ended, 1<<63)},
	} {
		f.Add(cursor.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := feed.ParseCursor(account, text)
		if err == nil && (got.Account != account || got.String() != text) {
			t.Errorf("%q is %+v", text, got)
		}
		if err != nil && !errors.Is(err, feed.ErrMalformedCursor) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestCursor_Check(t *testing.T) {
	since := created
	older, newer := since.Add(-time.Hour), since.Add(time.Hour)
	read := func(at, headAt time.Time) feed.Cursor {
		return feed.Cursor{Account: account, Entry: entry(at, 3), HeadAt: headAt}
	}
	lost := func(before feed.EntryID) error {
		return feed.LostError{Survivor: feed.Cursor{Account: account, Entry: before}}
	}
	newest := entry(newer.Add(time.Minute), 0)
	for name, row := range map[string]struct {
		cursor feed.Cursor
		kept   feed.Kept
		want   error
	}{
		"there":                              {read(newer, time.Time{}), feed.Kept{Entry: true}, nil},
		"the begin":                          {feed.Cursor{Account: account}, feed.Kept{Oldest: newest}, nil},
		"aged, had reached the head":         {read(older, newer), feed.Kept{Oldest: newest}, nil},
		"aged, had reached the head then":    {read(older, since), feed.Kept{Oldest: newest}, nil},
		"aged, reached the head too early":   {read(older, older), feed.Kept{Oldest: newest}, feed.ErrCursorExpired},
		"aged, had not reached the head":     {read(older, time.Time{}), feed.Kept{Oldest: newest}, feed.ErrCursorExpired},
		"nothing read, had reached the head": {feed.Cursor{Account: account, HeadAt: newer}, feed.Kept{Oldest: newest}, nil},
		"nothing read, too long ago":         {feed.Cursor{Account: account, HeadAt: older}, feed.Kept{Oldest: newest}, feed.ErrCursorExpired},
		"aged, and full since":               {read(older, newer), feed.Kept{Oldest: newest, Full: true}, feed.ErrCursorExpired},
		"aged, and full before":              {read(older, newer), feed.Kept{Oldest: entry(newer, 0), Full: true}, nil},
		"dropped as the feed is full":        {read(newer, newer), feed.Kept{Oldest: newest, Full: true}, feed.ErrCursorExpired},
		"lost":                               {read(newer, newer), feed.Kept{Oldest: newest, Before: entry(since, 9)}, lost(entry(since, 9))},
		"lost, and full":                     {read(newer, newer), feed.Kept{Full: true, Before: entry(since, 9)}, lost(entry(since, 9))},
		"lost with all before":               {read(newer, newer), feed.Kept{Oldest: newest}, lost(feed.EntryID{})},
		"lost with everything":               {read(newer, newer), feed.Kept{}, lost(feed.EntryID{})},
		"lost, but for what is not shown":    {read(newer, newer), feed.Kept{Oldest: entry(older, 1), Before: entry(older, 1)}, lost(feed.EntryID{})},
		"made up":                            {feed.Cursor{Account: account, Entry: feed.EntryID{Millis: 1 << 62}}, feed.Kept{Before: newest}, lost(newest)},
	} {
		t.Run(name, func(t *testing.T) {
			row.kept.Since = since
			if got := row.cursor.Check(row.kept); !errors.Is(got, row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}
