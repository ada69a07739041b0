package web

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/merchant-operator/merchant-operator/internal/money"
)

//go:embed words/*.json
var wordFiles embed.FS

// Words are what pages say to people, in one language: the file words/<language>.json. {0}, {1} and so on stand for values. A text about a
// number has a key for each plural form of the language (CLDR), such as keys.one and keys.other, and {0} is the number.
type Words struct {
	language language.Tag
	texts    map[string]string
	amounts  money.Formatter
}

// LoadWords returns the words in a language.
func LoadWords(tag language.Tag) (Words, error) {
	w := Words{language: tag, amounts: money.NewFormatter(tag)}
	file, err := wordFiles.ReadFile("words/" + tag.String() + ".json")
	if err == nil {
		err = json.Unmarshal(file, &w.texts)
	}
	if err != nil {
		return w, fmt.Errorf("read the words of %s: %w", tag, err)
	}
	return w, nil
}

// Known reports whether there are words for a key. What people read of a reason that others choose depends on that: an unknown one may be a
// newer version's, or anything that a tenant has written into a status.
func (w Words) Known(key string) bool {
	_, known := w.texts[key]
	return known
}

// Text returns plain text. A key without words is its own text; a test finds it.
func (w Words) Text(key string, values ...any) string {
	return w.fill(key, fmt.Sprint, values)
}

// HTML returns the words with their markup. Values are escaped, unless they are HTML.
func (w Words) HTML(key string, values ...any) template.HTML {
	return template.HTML(w.fill(key, escaped, values)) //nolint:gosec // the words are ours, and values are escaped
}

func escaped(values ...any) string {
	if text, isHTML := values[0].(template.HTML); isHTML {
		return string(text)
	}
	return template.HTMLEscapeString(fmt.Sprint(values...))
}

// Count is HTML of the plural form for a number, which comes before the other values.
func (w Words) Count(key string, n int64, values ...any) template.HTML {
	return w.HTML(key+"."+w.form(n), append([]any{w.Number(n)}, values...)...)
}

// Amount writes an amount, in the currency's minor unit, with the symbol or code of the currency.
func (w Words) Amount(minor int64, code string) string { return w.amounts.Format(minor, code) }

// PlainAmount writes an amount as a person types it, without symbol and groups of digits.
func (w Words) PlainAmount(minor int64, code string) string { return w.amounts.Plain(minor, code) }

// Symbols returns the symbol of a currency, and the narrow one, which other currencies may have too.
func (w Words) Symbols(code string) (symbol, narrow string) { return w.amounts.Symbols(code) }

// ParseAmount reads an amount that a person typed.
func (w Words) ParseAmount(text, code string) (minor int64, ok bool) {
	return w.amounts.Parse(text, code)
}

// Date writes a time in its zone. The words of the key, date.*, choose among {0} the day, {1} the name of the month, {2} the year, {3} the name
// of the weekday, {4} the hour and minute, {5} these and the second, and {6} the zone; the names are short.
func (w Words) Date(key string, at time.Time) string {
	return w.Text(key, at.Day(), w.Text(fmt.Sprintf("month.short.%d", at.Month())), at.Year(), w.Text(fmt.Sprintf("weekday.short.%d", at.Weekday())),
		at.Format("15:04"), at.Format("15:04:05"), at.Format("MST"))
}

// Decimal writes a number with that many decimals.
func (w Words) Decimal(x float64, decimals int) string {
	return message.NewPrinter(w.language).Sprint(number.Decimal(x, number.Scale(decimals)))
}

// Number groups the digits of a number as the language does.
func (w Words) Number(n int64) string {
	return message.NewPrinter(w.language).Sprint(number.Decimal(n))
}

var pluralForms = map[plural.Form]string{
	plural.Zero: "zero", plural.One: "one", plural.Two: "two", plural.Few: "few", plural.Many: "many", plural.Other: "other",
}

func (w Words) form(n int64) string {
	const enough = 1_000_000 // of the digits; the forms of a language repeat
	return pluralForms[plural.Cardinal.MatchPlural(w.language, int(n%enough), 0, 0, 0, 0)]
}

func (w Words) fill(key string, write func(...any) string, values []any) string {
	text, known := w.texts[key]
	if !known {
		return key
	}
	var pairs []string
	for i, value := range values {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", write(value))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
