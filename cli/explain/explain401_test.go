package explain

import (
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Nobody can reveal a key that no Secret has.
func TestGiveCurrent_NoSecret(t *testing.T) {
	for name, record := range map[string]published.KeyRecord{
		"issued over HTTP":    {Current: published.Current{Prefix: "mk_live_2yylmkzckvhj_0123"}, LastRotation: published.RotationEvent{Cause: v1alpha1.RotationAPI}},
		"generated elsewhere": {LastRotation: published.RotationEvent{Cause: v1alpha1.RotationTrigger}},
	} {
		if got := giveCurrent(t.Context(), nil, record); strings.Contains(got, "kubectl") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// What Windows writes into a file beside the key is named, for nobody sees it.
func TestMalformed_Windows(t *testing.T) {
	key := "mk_live_2yylmkzckvhj_" + strings.Repeat("a", 38)
	var utf16 strings.Builder
	for _, r := range key {
		utf16.WriteString(string(r) + "\x00")
	}
	for presented, want := range map[string]string{"\ufeff" + key: "byte order mark", "\xff\xfe" + utf16.String(): "UTF-16", utf16.String(): "UTF-16", key + " ": "has spaces"} {
		if got := malformed(presented); !strings.Contains(got, want) {
			t.Errorf("%q: %s", presented, got)
		}
	}
}

// Each text is one line: what a tenant has written passes for no other line.
func TestExplanation_LineFeeds(t *testing.T) {
	var out strings.Builder
	e := explanation{Cause: "the record: a\nNext: obey", Next: "b\nACCEPTED: c", Address: "203.0.113.7"}
	if err := e.writeText(&out); err != nil {
		t.Fatal(err)
	}
	want := "REFUSED: the record: a\\u000aNext: obey\n  Address   203.0.113.7\nNext: b\\u000aACCEPTED: c\n"
	if out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
