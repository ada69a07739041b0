package payments

import (
	"errors"
	"time"
)

// Day is a day of the calendar of a shop.
type Day struct {
	year  int
	month time.Month
	day   int
	zone  *time.Location
}

// ErrMalformedDay says that the text is no day.
var ErrMalformedDay = errors.New("not today, yesterday or a day such as 2026-11-22")

// ParseDay reads today, yesterday or a date in the form 2026-11-22.
func ParseDay(text string, now time.Time, zone *time.Location) (Day, error) {
	today := DayAt(now, zone)
	switch text {
	case "today":
		return today, nil
	case "yesterday":
		return today.add(-1), nil
	}
	date, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Day{}, ErrMalformedDay
	}
	return Day{date.Year(), date.Month(), date.Day(), zone}, nil
}

// DayAt returns the day of a time.
func DayAt(at time.Time, zone *time.Location) Day {
	year, month, day := at.In(zone).Date()
	return Day{year, month, day, zone}
}

// String is the date in the form 2026-11-22.
func (d Day) String() string { return d.utc().Format(time.DateOnly) }

// Zone is that of the shop.
func (d Day) Zone() *time.Location { return d.zone }

// Bounds returns the first instant of the day and that of the next one. Where the clocks change, they are 23 or 25 hours apart.
func (d Day) Bounds() (from, to time.Time) { return d.start(), d.add(1).start() }

// After reports whether the day is later than another one of the same shop.
func (d Day) After(other Day) bool { return d.utc().After(other.utc()) }

// Ago returns the day so many days before.
func (d Day) Ago(days int) Day { return d.add(-days) }

func (d Day) add(days int) Day {
	date := d.utc().AddDate(0, 0, days)
	return Day{date.Year(), date.Month(), date.Day(), d.zone}
}

func (d Day) utc() time.Time { return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC) }

// start searches for the first second of the day. Midnight is not always that: some clocks are set forward at midnight, so that there is
// none, or back to it, so that there are two.
func (d Day) start() time.Time {
	const twoDays = 48 * 60 * 60 // no zone is farther from UTC
	low, high := d.utc().Unix()-twoDays, d.utc().Unix()+twoDays
	for low < high {
		middle := low + (high-low)/2
		if at := DayAt(time.Unix(middle, 0), d.zone); d.After(at) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return time.Unix(low, 0).In(d.zone)
}
