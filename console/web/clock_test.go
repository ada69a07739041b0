package web

import (
	"regexp"
	"testing"
	"time"
)

var tags = regexp.MustCompile(`<[^>]*>`)

// Times are said as near as they are, by the midnights of the shop.
func TestClock(t *testing.T) {
	chicago, err := time.LoadLocation("America/Chicago")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 24, 1, 0, 0, 0, time.UTC) // Monday, 19:00 in Chicago
	c := Clock{english(t), now, chicago}
	for _, test := range []struct {
		when   time.Duration
		at, on string
	}{
		{0, "today at 19:00", "today at 19:00"},
		{-19 * time.Hour, "today at 00:00", "today at 00:00"},
		{-19*time.Hour - time.Minute, "yesterday at 23:59", "yesterday at 23:59"},
		{5 * time.Hour, "tomorrow at 00:00", "tomorrow at 00:00"},
		{-3 * 24 * time.Hour, "Friday at 19:00", "on Friday at 19:00"},
		{6 * 24 * time.Hour, "Sunday at 19:00", "on Sunday at 19:00"},
		{-7 * 24 * time.Hour, "16 November 2026 at 19:00", "on 16 November 2026 at 19:00"},
		{7 * 24 * time.Hour, "30 November 2026 at 19:00", "on 30 November 2026 at 19:00"},
	} {
		at, err := c.At(now.Add(test.when))
		on, onErr := c.On(now.Add(test.when))
		if err != nil || onErr != nil || tags.ReplaceAllString(string(at), "") != test.at || tags.ReplaceAllString(string(on), "") != test.on {
			t.Errorf("%v: %q, %q; want %q, %q", test.when, at, on, test.at, test.on)
		}
	}
	for ago, want := range map[time.Duration]string{
		0: "within the hour", 44 * time.Minute: "within the hour", 50 * time.Minute: "about an hour ago", 100 * time.Minute: "about 2 hours ago",
		23 * time.Hour: "about 23 hours ago", 24 * time.Hour: "about a day ago", 60 * time.Hour: "about 3 days ago",
	} {
		if got, err := c.Ago(now.Add(-ago)); err != nil || tags.ReplaceAllString(string(got), "") != want {
			t.Errorf("%v ago: %q, %v; want %q", ago, got, err, want)
		}
	}
	if _, err := c.At("yesterday"); err == nil {
		t.Error("a text is a time")
	}
}
