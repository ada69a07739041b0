package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

const (
	// MaxEnded is the most sessions of a page.
	MaxEnded = 1000
	// scannedAtOnce is how many entries of the feed Redis returns to a script at once, and how many a merchant lists for the price of a request.
	scannedAtOnce = eventsPerRequest
	// maxChunks is how often it does so for a page: that bounds how long one script blocks Redis.
	maxChunks = 1000 / scannedAtOnce
)

// EndedQuery says which ended sessions to list.
type EndedQuery struct {
	// From and To say when the end was recorded, by the clock of Redis and to the millisecond: not before From, and before To. Zero: at any time.
	From, To time.Time
	// Status lists only those; empty: all.
	Status session.Status
	// Money lists also payments that were refused, and refunds that were confirmed.
	Money bool
	// Before lists only what was recorded before that entry; zero: from the newest on.
	Before feed.EntryID
	// Limit is the most sessions to list, from 1 to MaxEnded.
	Limit int
}

// EndedSession is a session as it was when it ended, or when the money of it moved that EndedQuery.Money lists.
type EndedSession struct {
	session.Session

	// Refused is a payment that the session did not take, and Refund what went back of a payment; nil both: the session ended.
	Refused *session.Payment
	Refund  *feed.Refund

	// Entry is the one of the feed. Its time is when the end was recorded, which is later than EndedAt for a session that expired unseen.
	Entry feed.EntryID
}

// EndedPage is a part of the ended sessions.
type EndedPage struct {
	// Sessions are the newest first. They may be fewer than asked for, or none, although more follow.
	Sessions []EndedSession
	// Next is what Before of the next page must be; zero: nothing follows.
	Next feed.EntryID
	// Since is the time from which on everything is listed: From, or later if what was recorded then is not kept any more.
	Since time.Time
}

// ReadEnded lists ended sessions of an account, the newest first. Sales that come in meanwhile change no further page. Errors: redis.ErrCorrupt,
// redis.ErrUnavailable.
func (s *Store) ReadEnded(ctx context.Context, account Account, query EndedQuery) (EndedPage, error) {
	call := redis.NewCall(listEndedScript)
	call.Key("feed_key", account.space(), outbox.FeedKey, account.name())
	query.args(&call, s.endedHistory(account))
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return EndedPage{}, fmt.Errorf("list ended sessions: %w", err)
	}
	return parseEnded(&reply, account)
}

// Ended is ReadEnded for a request of the merchant. Each scannedAtOnce entries of the feed that it examines are charged as a request, so a page ends
// where the limit has no room for more. Errors are also those of Admit.
func (s *Store) Ended(ctx context.Context, asks admission.Request, query EndedQuery) (admission.Admitted, EndedPage, error) {
	account := Account{asks.MerchantID, asks.TestMode}
	call := s.admitter.NewCall(admitEndedScript, &asks)
	call.AdmissionKeys()
	call.Key("feed_key", account.space(), outbox.FeedKey, account.name())
	call.AdmissionArgs()
	query.args(&call.Call, s.endedHistory(account))
	admitted, _, reply, err := run(ctx, &call, "list ended sessions")
	if err != nil {
		return admitted, EndedPage{}, err
	}
	page, err := parseEnded(&reply, account)
	return admitted, page, err
}

// recordedWithin is how much later than a session was paid its end is recorded at most, unless a failover of Redis was to a server whose clock is
// further behind: entries of the feed are never older than those before them.
const recordedWithin = 5 * time.Second

// paidQuery lists the end of the session that was paid with a reference on its receipt, among those of the same seconds.
func paidQuery(reference session.Reference, now time.Time) EndedQuery {
	paidAt := reference.PaidAt(now)
	return EndedQuery{From: paidAt, To: paidAt.Add(time.Second + recordedWithin), Status: session.Completed, Limit: MaxEnded}
}

// dropOthers drops the sessions whose receipts have another reference.
func (p *EndedPage) dropOthers(reference session.Reference) {
	p.Sessions = slices.DeleteFunc(p.Sessions, func(ended EndedSession) bool {
		other, _ := ended.Session.Reference()
		return other != reference
	})
}

// FindPaid lists the sessions of an account, mostly one, whose receipts have a reference, for a request of the merchant. It is a list of Ended that goes on
// until it has a session: each further read is charged as a request, and if the limit has no room for one, the page is empty and Next says where to go on.
// before is EndedQuery.Before, and now says which of the times is meant that a reference stands for.
func (s *Store) FindPaid(
	ctx context.Context, asks admission.Request, reference session.Reference, before feed.EntryID, now time.Time,
) (admission.Admitted, EndedPage, error) {
	query := paidQuery(reference, now)
	query.Before = before
	admitted, page, err := s.Ended(ctx, asks, query)
	for {
		page.dropOthers(reference)
		if err != nil || len(page.Sessions) > 0 || page.Next == (feed.EntryID{}) {
			return admitted, page, err
		}
		query.Before = page.Next
		further, next, furtherErr := s.Ended(ctx, asks, query)
		if errors.Is(furtherErr, admission.ErrRateLimited) {
			return admitted, page, nil
		}
		admitted, page, err = further, next, furtherErr
	}
}

// ReadPaid lists all that FindPaid does. since is EndedPage.Since: if the session was paid before that, it is not listed any more. Errors:
// as of ReadEnded.
func (s *Store) ReadPaid(ctx context.Context, account Account, reference session.Reference, now time.Time) (found []EndedSession, since time.Time, err error) {
	query := paidQuery(reference, now)
	for {
		page, err := s.ReadEnded(ctx, account, query)
		if err != nil {
			return nil, time.Time{}, err
		}
		page.dropOthers(reference)
		found = append(found, page.Sessions...)
		if query.Before = page.Next; query.Before == (feed.EntryID{}) {
			return found, page.Since, nil
		}
	}
}

// endedHistory is that of the account's feed.
func (s *Store) endedHistory(account Account) feed.History {
	return feed.History{Age: s.history.Age, Entries: s.history.Limit(account.TestMode)}
}

// endedKinds are the events of ends.
var endedKinds = map[session.Status]v1alpha1.WebhookEvent{
	session.Completed: v1alpha1.EventSessionCompleted,
	session.Failed:    v1alpha1.EventSessionFailed,
	session.Expired:   v1alpha1.EventSessionExpired,
	session.Cancelled: v1alpha1.EventSessionCancelled,
}

// args writes what lib/list_ended.lua takes.
func (q EndedQuery) args(call *redis.Call, history feed.History) {
	newest, oldest := "+", "0"
	if !q.To.IsZero() {
		newest = decimal(q.To.UnixMilli() - 1)
	}
	if before := q.Before; before != (feed.EntryID{}) && (q.To.IsZero() || before.RecordedAt().Before(q.To)) {
		newest = "(" + before.String()
	}
	if !q.From.IsZero() {
		oldest = decimal(q.From.UnixMilli())
	}
	var kinds []string
	for status, kind := range endedKinds {
		if q.Status == "" || q.Status == status {
			kinds = append(kinds, string(kind))
		}
	}
	if q.Money {
		kinds = append(kinds, string(v1alpha1.EventLatePayment), string(v1alpha1.EventPaymentMismatch), string(v1alpha1.EventPaymentRefunded))
	}
	call.Text("history", history.String())
	call.Text("newest", newest)
	call.Text("oldest", oldest)
	call.Text("kinds", " "+strings.Join(kinds, " ")+" ")
	call.Int("limit", int64(q.Limit))
}

// parseEnded reads what lib/list_ended.lua returns.
func parseEnded(reply *redis.Reply, account Account) (EndedPage, error) {
	var page EndedPage
	if last := reply.Text(); last != "" {
		var ok bool
		page.Next, ok = feed.ParseEntryID(last)
		reply.Require(ok)
	}
	page.Since = reply.Millis()
	rows := reply.List()
	for rows.More() {
		entry, ok := feed.ParseEntryID(rows.Text())
		rows.Require(ok)
		event, err := feed.Parse(account.name(), rows.Text())
		switch {
		case errors.Is(err, feed.ErrUnsupported): // a list that leaves out a payment is wrong
			return EndedPage{}, fmt.Errorf("list ended sessions: %w: %w", redis.ErrUnavailable, err)
		case err != nil || event.Session == nil:
			return EndedPage{}, redis.ErrCorrupt
		}
		page.Sessions = append(page.Sessions, EndedSession{event.Session.Session, event.Session.Payment, event.Session.Refund, entry})
	}
	if reply.Err() != nil || rows.Err() != nil {
		return EndedPage{}, redis.ErrCorrupt
	}
	return page, nil
}
