package console

import (
	"fmt"
	"html/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// clock writes times as a shop owner says them, in the time zone of the shop.
type clock struct {
	words words
	now   time.Time
	zone  *time.Location
}

func (c *console) shopClock(merchant *v1alpha1.Merchant) clock {
	return clock{c.words, c.now(), merchant.Spec.TimeZone.Location()}
}

// Zone is the name of the time zone.
func (c clock) Zone() string { return c.zone.String() }

// At is a time such as "Tuesday at 14:02"; without a time it is "never".
func (c clock) At(when any) (template.HTML, error) { return c.say("time.", when) }

// On is At for the middle of a sentence: "on Tuesday at 14:02".
func (c clock) On(when any) (template.HTML, error) { return c.say("time.on.", when) }

func (c clock) say(key string, when any) (template.HTML, error) {
	at, err := toTime(when)
	if err != nil || at.IsZero() {
		return c.words.html("time.never"), err
	}
	return c.element(at, c.day(key, at.In(c.zone))), nil
}

// day says a day as near as today, of the same week, or by its date, and the time of day.
func (c clock) day(key string, at time.Time) string {
	const week = 7
	hour := at.Format("15:04")
	switch days := c.days(at); {
	case days == 0:
		return c.words.text(key+"today", hour)
	case days == -1:
		return c.words.text(key+"yesterday", hour)
	case days == 1:
		return c.words.text(key+"tomorrow", hour)
	case days > -week && days < week:
		return c.words.text(key+"weekday", c.words.text(fmt.Sprintf("weekday.%d", at.Weekday())), hour)
	}
	return c.words.text(key+"date", at.Day(), c.words.text(fmt.Sprintf("month.%d", at.Month())), at.Year(), hour)
}

// days is the number of midnights from now to a time.
func (c clock) days(at time.Time) int {
	const day = 24 * time.Hour
	midnight := func(t time.Time) time.Time {
		year, month, day := t.Date()
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	return int(midnight(at).Sub(midnight(c.now.In(c.zone))) / day)
}

// Ago is how long ago something was, about: uses of keys are counted once in a while.
func (c clock) Ago(when any) (template.HTML, error) {
	at, err := toTime(when)
	if err != nil || at.IsZero() {
		return c.words.html("ago.unknown"), err
	}
	const soon, hour, day = 45 * time.Minute, time.Hour, 24 * time.Hour
	text := c.words.html("ago.moment")
	switch ago := c.now.Sub(at); {
	case ago >= day-hour/2:
		text = c.words.count("ago.days", int64(ago.Round(day)/day))
	case ago >= soon:
		text = c.words.count("ago.hours", max(1, int64(ago.Round(hour)/hour)))
	}
	return c.element(at, string(text)), nil
}

// element has the exact time for programs. A script adds the viewer's own time as its title.
func (c clock) element(at time.Time, text string) template.HTML {
	const html = `<time datetime="%s" title="%s" data-shop>%s</time>`
	return template.HTML(fmt.Sprintf(html, at.UTC().Format(time.RFC3339), at.In(c.zone).Format("2 Jan 2006, 15:04 MST"), text)) //nolint:gosec // digits, and our own words
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
