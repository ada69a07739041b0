package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

var (
	sweepListScript   = newScript("list_overdue", "sweep_list")
	sweepLineScript   = newScript("sweep_line", "sweep_line")
	sweepSingleScript = newScript("sweep_session", "sweep_single")
)

// Swept is what a sweep found.
type Swept struct {
	// Expired sessions that nobody had read since their time was over.
	Expired int
	// Corrupt sessions that could not be read. They are looked at again after an hour.
	Corrupt int
	// More: the limit was reached, and more may be overdue.
	More bool
	// Oldest is for how long the most overdue one had been due; zero: none was.
	Oldest time.Duration
}

// Sweep expires sessions of the bucket whose time is over, the longest overdue first and at most limit
// of them. It takes a trip to learn which they are, and one for each lifetime among them, as a script declares the keys that it
// writes. Errors: ErrCorrupt, ErrUnavailable; what was swept until then is returned with them.
func (s *Store) Sweep(ctx context.Context, bucket session.Bucket, limit int) (Swept, error) {
	space := keyspaceOf(bucket)
	answer, err := s.run(ctx, sweepListScript, []string{space.expiry()}, limit)
	if err != nil {
		return Swept{}, fmt.Errorf("list overdue sessions: %w", err)
	}
	ok := answer.text() == wordOK
	entries := answer.list()
	if !ok || answer.broken {
		return Swept{}, fmt.Errorf("list overdue sessions: %w", ErrCorrupt)
	}
	var sum Swept
	var looked int64
	for len(entries.rest) > 0 {
		swept, n, err := s.sweepEntry(ctx, space, entries.list())
		if err != nil {
			return sum, fmt.Errorf("sweep a bucket: %w", err)
		}
		sum.Expired, sum.Corrupt, sum.Oldest = sum.Expired+swept.Expired, sum.Corrupt+swept.Corrupt, max(sum.Oldest, swept.Oldest)
		looked += n
	}
	sum.More = looked >= int64(limit)
	return sum, nil
}

// sweepEntry sweeps one row of sweep_list.lua: a line or a single session.
func (s *Store) sweepEntry(ctx context.Context, space keyspace, entry *reply) (swept Swept, looked int64, err error) {
	name, since, line := entry.text(), entry.text(), entry.list()
	keys := []string{space.expiry(), space.queue(), space.due()}
	var answer *reply
	if strings.Trim(name, "0123456789") == "" {
		keys = append(keys, space.line(name))
		for len(line.rest) > 0 {
			keys = space.appendSession(keys, space.sessionIDOf(line.text()))
		}
		answer, err = s.run(ctx, sweepLineScript, keys, name, since)
	} else {
		answer, err = s.run(ctx, sweepSingleScript, space.appendSession(keys, name))
	}
	if err != nil {
		return Swept{}, 0, err
	}
	ok := answer.text() == wordOK
	swept = Swept{Expired: int(answer.integer()), Corrupt: int(answer.integer())}
	looked = answer.integer()
	swept.Oldest = time.Duration(answer.integer()) * time.Millisecond
	if !ok || answer.broken || entry.broken || line.broken {
		return Swept{}, 0, ErrCorrupt
	}
	return swept, looked, nil
}

// appendSession appends the keys of a session and of the event that tells of its end. The id is whatever somebody left in the index.
func (k keyspace) appendSession(keys []string, id string) []string {
	return append(keys, string(k)+sessionKind+id, string(k)+eventKind+outbox.EventIDOf(id, outbox.MarkEnded))
}

// sessionIDOf is what stands in a line behind the beginning of each session's key.
func (k keyspace) sessionIDOf(key string) string {
	return key[min(len(key), len(k)+len(sessionKind)):]
}
