package payments

import (
	"html/template"
	"time"

	"github.com/merchant-operator/merchant-operator/console/web"
)

// chart is a picture of what came in and went back in equal parts of a time, with the same as a table. It is of one currency.
type chart struct {
	Title template.HTML
	// Label is what the picture says to who does not see it.
	Label string
	// Width is the width of the picture in its own units; its height is chartHeight.
	Width int
	// Base is the height of the line from which bars rise; what went back hangs below it.
	Base float64
	Bars []chartBar
	// Most is the highest bar as an amount; empty: there are no bars.
	Most string
	// Ticks are texts below the picture, at the same distance from each other.
	Ticks []string
	Rows  []chartRow
	// Since is from when on payments are kept, if that is after the beginning; Counted is since when they were counted.
	Since, Counted template.HTML
}

// Units of a picture.
const chartHeight, chartStep, chartBarWidth = 100, 10, 7

// chartBar is a bar, with what a pointer on it says.
type chartBar struct {
	X             int
	Y, Height     float64
	Back          bool // of money that went back
	Title, Amount string
}

// chartRow is a part of the time in the table.
type chartRow struct {
	Name                 string
	Gross, Refunded, Net string
}

// part is a part of the time, and what came in and went back in it.
type part struct {
	name string
	sum  currencySum
}

// newChart draws the parts, the oldest first.
func newChart(words web.Words, parts []part, code string) *chart {
	format := func(cents int64) string { return words.Amount(cents, code) }
	var up, down int64
	for _, p := range parts {
		up, down = max(up, p.sum.gross()), max(down, p.sum.refunded)
	}
	picture := &chart{Width: chartStep * len(parts), Base: chartHeight}
	if up+down > 0 {
		picture.Base = chartHeight * float64(up) / float64(up+down)
		picture.Most = format(max(up, down))
	}
	for i, p := range parts {
		x := i*chartStep + (chartStep-chartBarWidth)/2 + 1
		if gross := p.sum.gross(); gross > 0 {
			height := max(picture.Base*float64(gross)/float64(up), 1)
			picture.Bars = append(picture.Bars, chartBar{X: x, Y: picture.Base - height, Height: height, Title: p.name, Amount: format(gross)})
		}
		if back := p.sum.refunded; back > 0 {
			height := max((chartHeight-picture.Base)*float64(back)/float64(down), 1)
			picture.Bars = append(picture.Bars, chartBar{X: x, Y: picture.Base, Height: height, Back: true, Title: p.name, Amount: format(-back)})
		}
		picture.Rows = append(picture.Rows, chartRow{p.name, format(p.sum.gross()), format(p.sum.refunded), format(p.sum.net())})
	}
	return picture
}

// newDaysChart draws the days of which all payments are kept.
func newDaysChart(clock web.Clock, counted *days, code string) *chart {
	var parts []part
	for i := shownDays - 1; i >= 0; i-- {
		if i > 0 && (counted.starts[i].Before(counted.since) || counted.more && counted.starts[i].Before(counted.counted)) {
			continue
		}
		parts = append(parts, part{clock.Words.Date("date.weekday", counted.starts[i]), counted.days[i].get(code)})
	}
	picture := newChart(clock.Words, parts, code)
	picture.Title = clock.Words.Count("payments.chart.days", int64(len(parts)))
	picture.Label = clock.Words.Text("payments.chart.days.label")
	first := counted.starts[len(parts)-1]
	picture.Ticks = []string{clock.Words.Date("date.day", first), clock.Words.Text("payments.day.today")}
	if len(parts) == 1 {
		picture.Ticks = picture.Ticks[1:]
	}
	if !counted.since.IsZero() {
		picture.Since = clock.Short(web.Minute, counted.since)
	}
	if counted.more {
		picture.Counted = clock.Short(web.Minute, counted.counted)
	}
	return picture
}

// newHoursChart draws the hours of today.
func newHoursChart(clock web.Clock, counted *days, code string) *chart {
	var parts []part
	start, end := counted.today.Bounds()
	for at := start; at.Before(end); at = at.Add(time.Hour) {
		parts = append(parts, part{clock.Words.Date(web.Hour, at), counted.hours[min(int(at.Sub(start)/time.Hour), hoursOfDay-1)].get(code)})
	}
	picture := newChart(clock.Words, parts, code)
	picture.Title = clock.Words.HTML("payments.chart.hours")
	picture.Label = clock.Words.Text("payments.chart.hours.label")
	for _, hour := range []int{0, 6, 12, 18, 24} {
		picture.Ticks = append(picture.Ticks, clock.Words.Date(web.Hour, start.Add(end.Sub(start)*time.Duration(hour)/24)))
	}
	return picture
}
