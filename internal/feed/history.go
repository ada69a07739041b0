package feed

import (
	"cmp"
	"errors"
	"strconv"
	"time"
)

// History is how much is kept of each feed.
type History struct {
	// Age is how long an event is kept. Default 7 days.
	Age time.Duration
	// Entries is the most events of an account; the oldest are dropped. Default 1,000,000. Of test mode, TestEntries are the most.
	Entries int64
}

// TestEntries is the most of an account in test mode.
const TestEntries = 10_000

const (
	defaultAge     = 7 * 24 * time.Hour
	minAge         = 24 * time.Hour
	maxAge         = 90 * 24 * time.Hour
	defaultEntries = 1_000_000
	minEntries     = 1000
	maxEntries     = 100_000_000
)

// Validate says what is wrong, by its flag.
func (h History) Validate() error {
	switch {
	case h.Age < minAge || h.Age > maxAge:
		return errors.New("--history must be from 24h to 2160h")
	case h.Entries < minEntries || h.Entries > maxEntries:
		return errors.New("--history-entries must be from 1000 to 100000000")
	}
	return nil
}

// WithDefaults fills in what is not given.
func (h History) WithDefaults() History {
	return History{Age: cmp.Or(h.Age, defaultAge), Entries: cmp.Or(h.Entries, defaultEntries)}
}

// Limit is the most entries in the mode.
func (h History) Limit(testMode bool) int64 {
	entries := h.WithDefaults().Entries
	if testMode {
		entries = min(entries, TestEntries)
	}
	return entries
}

// String returns the history as scripts read it: "<age in ms> <entries>".
func (h History) String() string {
	h = h.WithDefaults()
	return strconv.FormatInt(h.Age.Milliseconds(), 10) + " " + strconv.FormatInt(h.Entries, 10)
}
