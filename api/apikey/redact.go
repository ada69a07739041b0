package apikey

import (
	"fmt"
	"io"
	"log/slog"
)

// String returns the prefix and an ellipsis, never the plaintext.
func (k Key) String() string {
	if k.plaintext == nil {
		return "no key"
	}
	return k.Prefix() + "…"
}

// Format keeps every verb of fmt from the plaintext, also %d and %#v, which String does not reach.
func (k Key) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.String()) }

// LogValue keeps slog's handlers from looking into the Key.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// String keeps digests out of logs and messages; Hex is the way to the value.
func (d Digest) String() string { return "[digest]" }

// Format keeps every verb of fmt from the value, also %d and %#v, which String does not reach.
func (d Digest) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, d.String()) }

// LogValue keeps slog's handlers from the digest's text form.
func (d Digest) LogValue() slog.Value { return slog.StringValue(d.String()) }
