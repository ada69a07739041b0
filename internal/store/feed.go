package store

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// FeedEntry is an event with its place in the feed.
type FeedEntry struct {
	// Cursor is after the event.
	Cursor feed.Cursor
	Event  feed.Event
}

// FeedPage is what a consumer reads at once.
type FeedPage struct {
	// Entries are the oldest after the cursor, the oldest first.
	Entries []FeedEntry
	// Cursor is where the next page begins; it has HeadAt if there is none yet.
	Cursor feed.Cursor
	// Corrupt is how many entries could not be read and were passed over.
	Corrupt int
}

// eventsPerRequest is how many events a merchant reads for the price of a request. That many cost
// Redis 60 to 80 µs, about as much as four new sessions.
const eventsPerRequest = 20

// Feed reads at most limit events after a cursor of the caller's account; the zero Cursor is before the first event that is kept. Each
// eventsPerRequest events of a page, or fewer at its end, are charged as a request, so a page ends where the limit has no room for more. Errors are
// those of Admit and of feed.Cursor.Check, and feed.ErrUnsupported if the next event was written by a newer version.
func (s *Store) Feed(ctx context.Context, asks admission.Request, after feed.Cursor, limit int) (admission.Admitted, FeedPage, error) {
	after.Account = asks.Account()
	call := s.admitter.NewCall(readFeedScript, &asks)
	call.AdmissionKeys()
	call.Key("feed_key", asks.Space(), outbox.FeedKey, after.Account)
	call.AdmissionArgs()
	call.Text("after", after.Entry.String())
	const besides = 2 // the last one that was read, and one that says that there are more
	call.Int("limit", int64(limit)+besides)
	call.Millis("age", s.history.Age)
	admitted, _, reply, err := run(ctx, &call, "read the feed")
	if err != nil {
		return admitted, FeedPage{}, err
	}
	limit = int(reply.Int()) - besides
	entries := reply.List()
	kept := feed.Kept{Since: admitted.Now.Truncate(time.Millisecond).Add(-s.history.Age), Entry: !reply.More()}
	if !kept.Entry {
		kept.Full = reply.Int() >= s.history.Limit(asks.TestMode)
		kept.Oldest, kept.Before = entryID(&reply), entryID(&reply)
	}
	if reply.Err() != nil {
		return admitted, FeedPage{}, redis.ErrCorrupt
	}
	if err := after.Check(kept); err != nil {
		return admitted, FeedPage{}, err
	}
	page, err := newFeedPage(after, &entries, limit, admitted.Now)
	return admitted, page, err
}

// newFeedPage reads the entries of a page, with the last one that was read before it. The error is a feed.LostError if that is another one
// than the cursor's.
func newFeedPage(after feed.Cursor, entries *redis.Reply, limit int, now time.Time) (FeedPage, error) {
	page := FeedPage{Cursor: feed.Cursor{Account: after.Account, Entry: after.Entry, Checksum: after.Checksum}}
	for read := 0; entries.More() && read < limit; {
		row := entries.List()
		id, fields := entryID(&row), row.Map()
		if row.Err() != nil || entries.Err() != nil {
			return FeedPage{}, redis.ErrCorrupt
		}
		checksum := feed.Checksum(fields["e"])
		if id == after.Entry {
			if after.Checksum != "" && after.Checksum != checksum {
				return FeedPage{}, feed.LostError{Survivor: feed.Cursor{Account: after.Account}}
			}
			continue
		}
		event, err := feed.Parse(after.Account, fields["e"])
		switch {
		case errors.Is(err, feed.ErrUnsupported) && read == 0:
			return FeedPage{}, err
		case errors.Is(err, feed.ErrUnsupported):
			return page, nil
		case err != nil:
			page.Corrupt++
		default:
			page.Entries = append(page.Entries, FeedEntry{feed.Cursor{Account: after.Account, Entry: id, Checksum: checksum}, event})
		}
		page.Cursor.Entry, page.Cursor.Checksum = id, checksum
		read++
	}
	if !entries.More() {
		page.Cursor.HeadAt = now.Truncate(time.Millisecond)
	}
	return page, entries.Err()
}

func entryID(reply *redis.Reply) feed.EntryID {
	id, ok := feed.ParseEntryID(reply.Text())
	reply.Require(ok)
	return id
}
