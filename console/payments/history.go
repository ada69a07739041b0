package payments

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/lru"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	// shownDays is the number of days that are counted, today included.
	shownDays = 14
	// hoursOfDay is the most hours that a day has: 25, and a part of one where clocks change by half an hour.
	hoursOfDay = 26
	// settledAfter is when nothing is recorded any more for a time, also by a Redis whose clock is behind.
	settledAfter = 5 * time.Minute
	// keptFor is how long counts are kept before all is counted anew: Redis may have been restored from a backup.
	keptFor = time.Hour
	// maxHistories bounds the accounts whose counts are kept, maxSums the sums of each: an account has one sum for each day
	// and hour, and as many again for each further currency.
	maxHistories, maxSums = 1000, 400
)

// currencySum is what came in and what went back in one currency.
type currencySum struct {
	currency string
	payments int64 // that completed a session
	// paid came in, refused came in too and is to be sent back, refunded went back; in the currency's minor unit.
	paid, refused, refunded int64
}

// gross is what came in.
func (s currencySum) gross() int64 { return s.paid + s.refused }

// net is what came in, less what went back.
func (s currencySum) net() int64 { return s.gross() - s.refunded }

// currencySums has a sum for each currency, sorted by its code.
type currencySums []currencySum

func (s *currencySums) add(more currencySum) {
	at, found := slices.BinarySearchFunc(*s, more.currency, func(sum currencySum, code string) int { return strings.Compare(sum.currency, code) })
	if !found {
		*s = slices.Insert(*s, at, currencySum{currency: more.currency})
	}
	sum := &(*s)[at]
	sum.payments += more.payments
	sum.paid += more.paid
	sum.refused += more.refused
	sum.refunded += more.refunded
}

// get returns the sum of a currency, which may be zero.
func (s *currencySums) get(currency string) currencySum {
	for _, sum := range *s {
		if sum.currency == currency {
			return sum
		}
	}
	return currencySum{currency: currency}
}

// counts are the sums of each day of an account and of each hour of its newest day.
type counts struct {
	days  [shownDays]currencySums // by how many days ago
	hours [hoursOfDay]currencySums
}

// add adds the counts of other days of the same calendar.
func (c *counts) add(other *counts) {
	for i := range other.days {
		for _, sum := range other.days[i] {
			c.days[i].add(sum)
		}
	}
	for i := range other.hours {
		for _, sum := range other.hours[i] {
			c.hours[i].add(sum)
		}
	}
}

// clone shares nothing with the counts.
func (c *counts) clone() *counts {
	copied := new(counts)
	copied.add(c)
	return copied
}

// size is the number of sums.
func (c *counts) size() (n int) {
	for i := range c.days {
		n += len(c.days[i])
	}
	for i := range c.hours {
		n += len(c.hours[i])
	}
	return n
}

// calendar are the days that are counted: starts[i] is when the day begins that was i days ago.
type calendar struct {
	today  payments.Day
	starts [shownDays]time.Time
}

func newCalendar(now time.Time, zone *time.Location) calendar {
	c := calendar{today: payments.DayAt(now, zone)}
	for i := range c.starts {
		c.starts[i], _ = c.today.Ago(i).Bounds()
	}
	return c
}

// count adds an entry of the feed.
func (c *calendar) count(into *counts, entry *store.EndedSession) {
	at := entry.Entry.RecordedAt()
	day := slices.IndexFunc(c.starts[:], func(start time.Time) bool { return !at.Before(start) })
	_, end := c.today.Bounds()
	if day < 0 || !at.Before(end) { // of a Redis whose clock is ahead
		return
	}
	sum := currencySum{currency: entry.Currency}
	switch {
	case entry.Refused != nil:
		sum.currency, sum.refused = entry.Refused.Currency, entry.Refused.AmountCents
	case entry.Refund != nil:
		sum.currency, sum.refunded = entry.Refund.Currency, entry.Refund.AmountCents
	default:
		sum.payments, sum.paid = 1, entry.Charge.AmountCents
	}
	into.days[day].add(sum)
	if day == 0 {
		into.hours[min(int(at.Sub(c.starts[0])/time.Hour), hoursOfDay-1)].add(sum)
	}
}

// history is what was counted of an account: all that was recorded before settled, back to the entry oldest.
type history struct {
	counted *counts
	settled time.Time
	// oldest is the last entry that was examined; whole: there is nothing before it that counts.
	oldest feed.EntryID
	whole  bool
	// since is from when on everything is kept; zero: all of it was.
	since time.Time
}

// histories keep what was counted, so that a page reads only what is new. They are safe for concurrent use.
type histories struct {
	byAccount *lru.Cache // keptHistory by historyKey
}

// historyKey names the counts of an account on a calendar: another day or time zone has others.
type historyKey struct {
	account store.Account
	day     string
	zone    string
}

type keptHistory struct {
	history

	until time.Time
}

func newHistories() *histories { return &histories{lru.New(maxHistories)} }

func (h *histories) get(key historyKey, now time.Time) (keptHistory, bool) {
	found, _ := h.byAccount.Get(key)
	kept, known := found.(keptHistory)
	if !known || !now.Before(kept.until) {
		return keptHistory{history{counted: new(counts)}, now.Add(keptFor)}, false
	}
	kept.counted = kept.counted.clone()
	return kept, true
}

func (h *histories) put(key historyKey, kept keptHistory) {
	if kept.counted.size() <= maxSums {
		h.byAccount.Add(key, kept)
	}
}

// days are what a page shows of an account.
type days struct {
	calendar
	counts

	// more: older payments of these days were not counted yet; counted is since when all are.
	more    bool
	counted time.Time
	// since is from when on payments are kept; zero: all of these days are.
	since time.Time
}

// count adds up what came in and went back on the last days, in at most so many reads of store.MaxEnded entries each, the newest entries first. It goes
// on where the last page has stopped: what is settled is read once.
func (h *Handler) count(ctx context.Context, merchant *v1alpha1.Merchant, test bool, reads int) (days, error) {
	now, zone := h.Pages.Now(), merchant.Spec.TimeZone.Location()
	account := newAccount(merchant, test)
	shown := days{calendar: newCalendar(now, zone)}
	key := historyKey{account, shown.today.String(), zone.String()}
	kept, known := h.histories.get(key, now)
	first := shown.starts[shownDays-1]
	scan := countScan{h: h, merchant: merchant, test: test, calendar: &shown.calendar, left: reads}

	// What is new: from the end of what is settled. Entries have the milliseconds of Redis, so that a finer end would count some twice; so would
	// one that moves back, with the clock of this machine.
	settled, unsettled := now.Add(-settledAfter).Truncate(time.Millisecond), new(counts)
	if known && settled.Before(kept.settled) {
		settled = kept.settled
	}
	fresh := history{counted: new(counts), settled: settled}
	query := store.EndedQuery{From: first}
	if known {
		query.From = kept.settled
	}
	if err := scan.run(ctx, query, &fresh, unsettled); err != nil {
		return days{}, err
	}
	switch {
	case known && fresh.whole:
		kept.counted.add(fresh.counted)
		kept.settled = settled
		if fresh.since.After(kept.since) { // more was dropped meanwhile than was counted
			kept.since = fresh.since
		}
	default: // nothing was counted before, or there is a gap
		kept.history = fresh
	}
	// What is older than what was counted so far.
	if !kept.whole {
		query = store.EndedQuery{From: first, Before: kept.oldest}
		if err := scan.run(ctx, query, &kept.history, unsettled); err != nil {
			return days{}, err
		}
	}
	h.histories.put(key, kept)
	shown.counts = *kept.counted.clone()
	shown.add(unsettled)
	shown.more, shown.since = !kept.whole, kept.since
	if shown.more {
		shown.counted = kept.oldest.RecordedAt()
	}
	return shown, nil
}

// countScan reads entries, as many as are left to read.
type countScan struct {
	h        *Handler
	merchant *v1alpha1.Merchant
	test     bool
	calendar *calendar
	left     int // reads
}

// run counts the entries of a query into what is settled, and into unsettled what was recorded since.
func (s *countScan) run(ctx context.Context, query store.EndedQuery, into *history, unsettled *counts) error {
	query.Status, query.Money, query.Limit = session.Completed, true, store.MaxEnded
	for ; s.left > 0; s.left-- {
		found, err := s.h.readEnded(ctx, s.merchant, s.test, query)
		if err != nil {
			return err
		}
		if found.Since.After(query.From) && found.Since.After(into.since) {
			into.since = found.Since
		}
		for i := range found.Sessions {
			target := into.counted
			if !found.Sessions[i].Entry.RecordedAt().Before(into.settled) {
				target = unsettled
			}
			s.calendar.count(target, &found.Sessions[i])
		}
		if found.Next == (feed.EntryID{}) {
			into.whole = true
			s.left--
			return nil
		}
		into.oldest, query.Before = found.Next, found.Next
	}
	return nil
}
