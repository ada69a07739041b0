// Package money writes amounts for people, in their language.
package money

import (
	"math"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

const noBreakSpace = "\u00a0"

// Formatter writes amounts in one language. golang.org/x/text has the digits, separators and symbols of each; where the symbol goes is
// here, because its own formatter puts it first everywhere.
type Formatter struct {
	printer *message.Printer
	pattern amountPattern
}

// amountPattern is what CLDR says about amounts in a language.
type amountPattern struct {
	before string // the symbol comes first, followed by this; else last, behind a space that does not break
	first  bool
	// ungrouped: a number of four digits has no separator.
	ungrouped bool
	// mark makes the direction right to left, whatever stands around the amount.
	mark string
}

// amountPatterns has the languages whose amounts are not as in German: 1.250,00 €.
var amountPatterns = map[string]amountPattern{
	"en": {first: true},
	"ja": {first: true},
	"zh": {first: true},
	"nl": {first: true, before: noBreakSpace},
	"pt": {first: true, before: noBreakSpace},
	"es": {ungrouped: true},
	"it": {ungrouped: true},
	"pl": {ungrouped: true},
	"ar": {mark: "\u200f"},
}

// NewFormatter returns the Formatter of a language.
func NewFormatter(tag language.Tag) Formatter {
	base, _ := tag.Base()
	if base.String() == "ar" {
		tag = language.MustParse("ar-u-nu-latn") // as in CLDR since 42, and as on the till
	}
	return Formatter{message.NewPrinter(tag), amountPatterns[base.String()]}
}

// Format writes an amount, in the currency's minor unit, with the symbol or else the ISO 4217 code of the currency.
func (f Formatter) Format(minor int64, code string) string {
	if minor < 0 {
		return f.pattern.mark + "−" + f.Format(-minor, code) // before the symbol too
	}
	digits := session.MinorDigits(code)
	value := float64(minor) / math.Pow10(digits)
	options := []number.Option{number.Scale(digits)}
	const fiveDigits = 10_000
	if f.pattern.ungrouped && value < fiveDigits {
		options = append(options, number.NoSeparator())
	}
	amount := f.printer.Sprint(number.Decimal(value, options...))
	symbol, _ := f.Symbols(code)
	if !f.pattern.first {
		return f.pattern.mark + amount + noBreakSpace + symbol
	}
	space := f.pattern.before
	if last, _ := utf8.DecodeLastRuneInString(symbol); !unicode.IsSymbol(last) {
		space = noBreakSpace // KWD 1.250, but €1.25
	}
	return symbol + space + amount
}

// Symbols returns the symbol of a currency, such as CA$, and the narrow one, $, which other currencies may have too; else its code.
func (f Formatter) Symbols(code string) (symbol, narrow string) {
	unit, err := currency.ParseISO(code)
	if err != nil { // the currency is younger than the tables of golang.org/x/text
		return code, code
	}
	return f.printer.Sprint(currency.Symbol(unit)), f.printer.Sprint(currency.NarrowSymbol(unit))
}
