package money

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/number"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Signs before the decimals.
const point, comma = ".", ","

// decimalSign is the sign before the decimals in the language.
func (f Formatter) decimalSign() string {
	if strings.Contains(f.printer.Sprint(number.Decimal(0, number.Scale(1))), comma) {
		return comma
	}
	return point
}

// Plain writes an amount, in the currency's minor unit, as a person types it: without a symbol, and digits are not grouped.
func (f Formatter) Plain(minor int64, code string) string {
	return strings.Replace(session.FormatAmount(minor, code), point, f.decimalSign(), 1)
}

// Parse reads an amount that a person typed, into the currency's minor unit. Both 12,50 and 12.50 are read in every language, because only one
// amount is written so, and so are thousands in groups: 1.234,50 and 1,234.50. One sign before three digits is 1234 to one person and 1.234 to
// another: it is read as decimals if it is the language's decimal sign and the currency has so many, and else refused.
func (f Formatter) Parse(text, code string) (minor int64, ok bool) {
	const signs, ofGroup = point + comma, 3
	whole, decimals := strings.TrimSpace(text), ""
	if at := strings.LastIndexAny(whole, signs); at >= 0 && strings.Count(whole, whole[at:at+1]) == 1 {
		sign, before := whole[at:at+1], whole[:at]
		if decimals = whole[at+1:]; decimals == "" || len(decimals) == ofGroup && sign != f.decimalSign() && !strings.ContainsAny(before, signs) {
			return 0, false
		}
		whole = before
	}
	digits := session.MinorDigits(code)
	whole, ok = ungroup(whole)
	if !ok || len(decimals) > digits || strings.Trim(decimals, "0123456789") != "" {
		return 0, false
	}
	minor, err := strconv.ParseInt(whole+decimals+strings.Repeat("0", digits-len(decimals)), 10, 64)
	return minor, err == nil
}

// ungroup returns the digits of a number of which one sign may separate the thousands. A number without a sign needs at least one digit.
func ungroup(text string) (digits string, ok bool) {
	const ofGroup = 3
	sign := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsDigit(r) })
	groups := []string{text}
	if sign >= 0 {
		separator, _ := utf8.DecodeRuneInString(text[sign:])
		if !unicode.IsSpace(separator) && !strings.ContainsRune(".,'’", separator) {
			return "", false
		}
		groups = strings.Split(text, string(separator))
	}
	for i, group := range groups {
		if group == "" || strings.Trim(group, "0123456789") != "" || i > 0 && len(group) != ofGroup || len(groups) > 1 && len(group) > ofGroup {
			return "", false
		}
	}
	return strings.Join(groups, ""), true
}
