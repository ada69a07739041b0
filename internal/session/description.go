package session

import (
	"regexp"
	"unicode/utf8"
)

const maxDescriptionCharacters = 140

// What a payer reads of a session follows the rules of the displayName of a Merchant, whose CRD has the same patterns.
var (
	hiddenCharacter = regexp.MustCompile(`[\p{Cc}\p{Co}\x{ad}\x{34f}\x{61c}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{200b}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{2800}\x{3164}\x{fe00}-\x{fe0d}\x{feff}\x{ffa0}\x{fff0}-\x{fffb}\x{fffe}\x{ffff}\x{1bca0}-\x{1bca3}\x{1d173}-\x{1d17a}\x{e0000}-\x{e0fff}]`)
	hiddenJoiner    = regexp.MustCompile(`(^|[\p{Latin}\p{Greek}\p{Cyrillic}\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}\p{Z}\p{P}\p{N}])[\x{200c}\x{200d}]|[\x{200c}\x{200d}]($|[\p{Latin}\p{Greek}\p{Cyrillic}\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}\p{Z}\p{P}\p{N}])|(^|[\p{L}\p{M}\p{Z}])[\x{fe0e}\x{fe0f}]`)
	stackedMarks    = regexp.MustCompile(`[\p{Mn}\p{Me}]{5}`)
	visible         = regexp.MustCompile(`[\p{L}\p{N}\p{P}\p{S}]`)
)

func validDescription(text string) bool {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxDescriptionCharacters || !visible.MatchString(text) {
		return false
	}
	return isPrintableASCII(text) || // as most are, and faster than the patterns
		!hiddenCharacter.MatchString(text) && !hiddenJoiner.MatchString(text) && !stackedMarks.MatchString(text)
}

func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
