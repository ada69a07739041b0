package session

import (
	"maps"
	"strconv"
	"strings"
)

// MinorDigits are the decimals of a currency in ISO 4217. CLDR has others for some: it writes no decimals where the coins are not used,
// so with its digits 125000 IDR, which is 1,250.00, would be read as a hundred times as much.
func MinorDigits(currency string) int {
	if digits, other := otherMinorDigits[currency]; other {
		return digits
	}
	return 2
}

var otherMinorDigits = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}

// OtherMinorDigits returns the currencies whose decimals are not two, with their decimals.
func OtherMinorDigits() map[string]int { return maps.Clone(otherMinorDigits) }

// FormatAmount writes an amount of the currency's minor unit as a plain decimal number, exactly: 1250 EUR is 12.50.
func FormatAmount(minor int64, currency string) string {
	digits := MinorDigits(currency)
	text, sign := strconv.FormatInt(minor, 10), ""
	if minor < 0 {
		text, sign = text[1:], "-"
	}
	if digits == 0 {
		return sign + text
	}
	if missing := digits + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	return sign + text[:len(text)-digits] + "." + text[len(text)-digits:]
}
