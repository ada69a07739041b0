package web

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/language"
)

var tags = regexp.MustCompile(`<[^>]*>`)

// A German says and writes times so.
func TestClock_German(t *testing.T) {
	chicago, err := time.LoadLocation("America/Chicago")
	if err != nil {
		t.Fatal(err)
	}
	words, err := LoadWords(language.German)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 10, 1, 0, 0, 0, time.UTC) // Monday, 20:00 in Chicago
	c := Clock{words, now, chicago}
	for _, test := range []struct {
		when               time.Duration
		at, on, minute, of string
	}{
		{0, "heute um 20:00 Uhr", "heute um 20:00 Uhr", "9. März, 20:00", "Mo., 9. März"},
		{-3 * 24 * time.Hour, "Freitag um 19:00 Uhr", "am Freitag um 19:00 Uhr", "6. März, 19:00", "Fr., 6. März"}, // clocks changed between
		{-40 * 24 * time.Hour, "28. Januar 2026 um 19:00 Uhr", "am 28. Januar 2026 um 19:00 Uhr", "28. Jan., 19:00", "Mi., 28. Jan."},
	} {
		when := now.Add(test.when)
		at, err := c.At(when)
		on, onErr := c.On(when)
		got := []string{string(at), string(on), string(c.Short(Minute, when)), words.Date("date.weekday", when.In(chicago))}
		for i, want := range []string{test.at, test.on, test.minute, test.of} {
			if text := tags.ReplaceAllString(got[i], ""); text != want || err != nil || onErr != nil {
				t.Errorf("%v: %q, want %q; %v, %v", test.when, text, want, err, onErr)
			}
		}
	}
	at, _ := c.At(now)
	if want := `title="9. März 2026, 20:00 CDT"`; !strings.Contains(string(at), want) {
		t.Errorf("%s has no %s", at, want)
	}
	if got := tags.ReplaceAllString(string(c.Short(Second, now)), ""); got != "9. März 2026, 20:00:00" {
		t.Errorf("to the second it is %q", got)
	}
	if got := c.Short(Minute, time.Time{}); got != "" {
		t.Errorf("no time is %q", got)
	}
	if number, decimal, amount := words.Number(12345), words.Decimal(1.26, 1), words.Amount(-123450, "EUR"); number != "12.345" || decimal != "1,3" || amount != "−1.234,50\u00a0€" {
		t.Errorf("numbers are %q, %q, %q", number, decimal, amount)
	}
}

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
