package terminal

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Writer escapes what a terminal would obey, or what would show a text otherwise than it is:
// control characters but for the end of a line and tab, marks of the direction of writing, and
// other invisible characters. Whatever a tenant has put into a name, a message or an event, it
// reaches no terminal. An escape has the form of JSON, so JSON stays exact.
type Writer struct {
	to  io.Writer
	err error // of the first write that failed
	// cut is the beginning of a character, or of a line's end, whose rest is in the next write.
	cut []byte
}

// Escape returns a Writer that writes to another one.
func Escape(to io.Writer) *Writer { return &Writer{to: to} }

// Err is the error of the first write that failed, if one did, say because the disk is full.
func (w *Writer) Err() error { return w.err }

// Write escapes the text and writes it.
func (w *Writer) Write(text []byte) (int, error) {
	all := slices.Concat(w.cut, text)
	w.cut = nil
	if last := lastStart(all); last < len(all) && (!utf8.FullRune(all[last:]) || all[last] == '\r') {
		w.cut = bytes.Clone(all[last:])
		all = all[:last]
	}
	if _, err := w.to.Write([]byte(escape(string(all), "\n\t"))); err != nil {
		w.err = cmp.Or(w.err, err)
		return 0, err
	}
	return len(text), nil
}

// lastStart is where the last character of a text begins, complete or not.
func lastStart(text []byte) int {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return len(text)
}

// escape escapes the characters of a text that are unsafe on a terminal, except those given.
func escape(text, except string) string {
	safe := func(r rune) bool { return !unsafe(r) || strings.ContainsRune(except, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !safe(r) }) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1: // a byte above 0x7f may be a control character of its own
			fmt.Fprintf(&out, `\u%04x`, text[i])
		case safe(r), r == '\r' && safe('\n') && strings.HasPrefix(text[i+size:], "\n"): // as lines of CSV end
			out.WriteRune(r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
	}
	return out.String()
}

// unsafe is true for control and invisible characters. The joiners, and what is beyond the basic plane, are text: scripts and emoji need them.
func unsafe(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return r != nonJoiner && r != joiner && r <= 0xffff && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Inline escapes a text for a part of a line: it has no line feed, with which it could pass for another line, and no tab.
func Inline(text string) string { return escape(text, "") }

// Printable is text of others without what could control a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
