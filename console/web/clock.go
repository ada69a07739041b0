package web

import (
	"fmt"
	"html/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Clock writes times as a shop owner says them, in the time zone of the shop.
type Clock struct {
	Words    Words
	Now      time.Time
	Location *time.Location
}

// Zone is the name of the time zone.
func (c Clock) Zone() string { return c.Location.String() }

// At is a time such as "Tuesday at 14:02"; without a time it is "never".
func (c Clock) At(when any) (template.HTML, error) { return c.say("time.", when) }

// On is At for the middle of a sentence: "on Tuesday at 14:02".
func (c Clock) On(when any) (template.HTML, error) { return c.say("time.on.", when) }

func (c Clock) say(key string, when any) (template.HTML, error) {
	at, err := toTime(when)
	if err != nil || at.IsZero() {
		return c.Words.HTML("time.never"), err
	}
	return c.element(at, c.day(key, at.In(c.Location))), nil
}

// day says a day as near as today, of the same week, or by its date, and the time of day.
func (c Clock) day(key string, at time.Time) string {
	const week = 7
	hour := at.Format("15:04")
	switch days := c.days(at); {
	case days == 0:
		return c.Words.Text(key+"today", hour)
	case days == -1:
		return c.Words.Text(key+"yesterday", hour)
	case days == 1:
		return c.Words.Text(key+"tomorrow", hour)
	case days > -week && days < week:
		return c.Words.Text(key+"weekday", c.Words.Text(fmt.Sprintf("weekday.%d", at.Weekday())), hour)
	}
	return c.Words.Text(key+"date", at.Day(), c.Words.Text(fmt.Sprintf("month.%d", at.Month())), at.Year(), hour)
}

// days is the number of midnights from now to a time.
func (c Clock) days(at time.Time) int {
	const day = 24 * time.Hour
	midnight := func(t time.Time) time.Time {
		year, month, day := t.Date()
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	return int(midnight(at).Sub(midnight(c.Now.In(c.Location))) / day)
}

// Ago is how long ago something was, about: uses of keys are counted once in a while.
func (c Clock) Ago(when any) (template.HTML, error) {
	at, err := toTime(when)
	if err != nil || at.IsZero() {
		return c.Words.HTML("ago.unknown"), err
	}
	const soon, hour, day = 45 * time.Minute, time.Hour, 24 * time.Hour
	text := c.Words.HTML("ago.moment")
	switch ago := c.Now.Sub(at); {
	case ago >= day-hour/2:
		text = c.Words.Count("ago.days", int64(ago.Round(day)/day))
	case ago >= soon:
		text = c.Words.Count("ago.hours", max(1, int64(ago.Round(hour)/hour)))
	}
	return c.element(at, string(text)), nil
}

// element has the exact time for programs. A script adds the viewer's own time as its title.
func (c Clock) element(at time.Time, text string) template.HTML {
	const html = `<time datetime="%s" title="%s" data-shop>%s</time>`
	return template.HTML(fmt.Sprintf(html, at.UTC().Format(time.RFC3339), c.Words.Date("date.zone", at.In(c.Location)), text)) //nolint:gosec // digits, and our own words
}

// Layouts of Short: words of a date.
const (
	Minute = "date.minute" // a day of this year, and the minute
	Second = "date.second" // a day of any year, and the second
	Hour   = "date.hour"   // a time of a day that is known
)

// Short is a time as a table says it; empty: there is none. No script replaces it by the viewer's own time: a day of payments is the shop's.
func (c Clock) Short(layout string, at time.Time) template.HTML {
	if at.IsZero() {
		return ""
	}
	const text = `<time datetime="%s" data-shop>%s</time>`
	return template.HTML(fmt.Sprintf(text, at.UTC().Format(time.RFC3339), c.Words.Date(layout, at.In(c.Location)))) //nolint:gosec // digits, and our own words
}

func toTime(when any) (time.Time, error) {
	switch when := when.(type) {
	case time.Time:
		return when, nil
	case metav1.Time:
		return when.Time, nil
	case *metav1.Time:
		if when == nil {
			return time.Time{}, nil
		}
		return when.Time, nil
	}
	return time.Time{}, fmt.Errorf("%T is not a time", when)
}
