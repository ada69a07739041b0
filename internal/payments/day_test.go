package payments_test

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata" // the programs have it too

	"github.com/merchant-operator/merchant-operator/internal/payments"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	location, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

func TestParseDay(t *testing.T) {
	now := time.Date(2026, 11, 22, 23, 30, 0, 0, time.UTC)
	for _, test := range []struct{ text, zone, want string }{
		{"today", "UTC", "2026-11-22"},
		{"today", "Europe/Berlin", "2026-11-23"},
		{"today", "America/Los_Angeles", "2026-11-22"},
		{"yesterday", "Europe/Berlin", "2026-11-22"},
		{"yesterday", "Asia/Tokyo", "2026-11-22"},
		{"2026-02-28", "Asia/Tokyo", "2026-02-28"},
	} {
		day, err := payments.ParseDay(test.text, now, zone(t, test.zone))
		if err != nil || day.String() != test.want {
			t.Errorf("%s in %s is %s (%v), want %s", test.text, test.zone, day, err, test.want)
		}
	}
	for _, text := range []string{"", "tomorrow", "2026-02-30", "22.11.2026", "2026-11-22T00:00:00Z", "2026-1-2"} {
		if day, err := payments.ParseDay(text, now, time.UTC); !errors.Is(err, payments.ErrMalformedDay) {
			t.Errorf("%q is %s, %v", text, day, err)
		}
	}
}

func TestDay_Bounds(t *testing.T) {
	for _, test := range []struct {
		name, zone, day, from string
		length                time.Duration
	}{
		{"UTC", "UTC", "2026-11-22", "2026-11-22T00:00:00Z", 24 * time.Hour},
		{"east", "Europe/Berlin", "2026-11-22", "2026-11-22T00:00:00+01:00", 24 * time.Hour},
		{"west", "America/New_York", "2026-11-22", "2026-11-22T00:00:00-05:00", 24 * time.Hour},
		{"farthest east", "Pacific/Kiritimati", "2026-11-22", "2026-11-22T00:00:00+14:00", 24 * time.Hour},
		{"half an hour", "Asia/Kolkata", "2026-11-22", "2026-11-22T00:00:00+05:30", 24 * time.Hour},
		{"summer time begins", "Europe/Berlin", "2026-03-29", "2026-03-29T00:00:00+01:00", 23 * time.Hour},
		{"summer time ends", "Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00", 25 * time.Hour},
		{"by half an hour", "Australia/Lord_Howe", "2026-04-05", "2026-04-05T00:00:00+11:00", 24*time.Hour + 30*time.Minute},
		{"no midnight", "Asia/Beirut", "2026-03-29", "2026-03-29T01:00:00+03:00", 23 * time.Hour},
		{"before a day that begins at one", "Asia/Beirut", "2026-03-28", "2026-03-28T00:00:00+02:00", 24 * time.Hour},
		{"two midnights", "America/Havana", "2026-11-01", "2026-11-01T00:00:00-04:00", 25 * time.Hour},
		{"a day that never was", "Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			day, err := payments.ParseDay(test.day, time.Time{}, zone(t, test.zone))
			if err != nil {
				t.Fatal(err)
			}
			from, to := day.Bounds()
			if got := from.Format(time.RFC3339); got != test.from || to.Sub(from) != test.length {
				t.Errorf("it begins at %s and lasts %s, want %s and %s", got, to.Sub(from), test.from, test.length)
			}
		})
	}
}

// A payment is of one day, whatever the clocks do: each day begins where the one before it ends, and has what the shop's calendar says.
func TestDay_BoundsHaveNoGap(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Africa/Cairo", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca"} {
		location := zone(t, name)
		at := time.Date(2026, 1, 1, 12, 0, 0, 0, location)
		_, last := payments.DayAt(at.AddDate(0, 0, -1), location).Bounds()
		for range 730 {
			day := payments.DayAt(at, location)
			from, to := day.Bounds()
			if !from.Equal(last) {
				t.Fatalf("%s: %s begins at %s, the day before ends at %s", name, day, from, last)
			}
			if first, end := payments.DayAt(from, location), payments.DayAt(to.Add(-time.Second), location); first != day || end != day {
				t.Fatalf("%s: %s is from %s to %s", name, day, first, end)
			}
			last, at = to, at.AddDate(0, 0, 1)
		}
	}
}
