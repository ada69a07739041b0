package payments

import (
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	// closedAfter is when a day is closed: nothing is recorded in it any more, also by a Redis whose clock is behind.
	closedAfter = 5 * time.Minute
	// closedFor is how long the totals of a closed day are kept, and maxClosedDays how many.
	closedFor, maxClosedDays = 10 * time.Minute, 1000
)

// closedDays keeps the totals of days that are over, so that yesterday is not added up again with each page. It is safe for concurrent use.
type closedDays struct {
	mu    sync.Mutex
	byDay map[closedDay]closedTotals
}

type closedDay struct {
	account  store.Account
	from, to int64 // in Unix seconds
}

type closedTotals struct {
	DayTotals

	until time.Time
}

func newClosedDays() *closedDays { return &closedDays{byDay: map[closedDay]closedTotals{}} }

func newClosedDay(account store.Account, totals *DayTotals) closedDay {
	from, to := totals.Day.Bounds()
	return closedDay{account, from.Unix(), to.Unix()}
}

// get fills in the totals of a day, if they are kept.
func (c *closedDays) get(account store.Account, totals *DayTotals, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, known := c.byDay[newClosedDay(account, totals)]
	if !known || !now.Before(kept.until) {
		return false
	}
	kept.Name = totals.Name
	*totals = kept.DayTotals
	return true
}

// put keeps the totals of a day, which were read at that time, if it was closed then.
func (c *closedDays) put(account store.Account, totals *DayTotals, read time.Time) {
	if _, end := totals.Day.Bounds(); read.Before(end.Add(closedAfter)) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byDay) >= maxClosedDays {
		clear(c.byDay)
	}
	c.byDay[newClosedDay(account, totals)] = closedTotals{*totals, read.Add(closedFor)}
}
