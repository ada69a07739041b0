package session_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A reference on a receipt says when its session was paid, however it is typed.
func TestReference_Finds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := session.NewID("abcdefgh2345", rapid.Bool().Draw(t, "test mode"))
		now := time.Unix(rapid.Int64Range(1_577_836_800, 4_102_444_800).Draw(t, "now"), 0)
		// Not longer than the longest --history, and a clock may be behind.
		paidAt := now.Add(-time.Duration(rapid.Int64Range(-3600_000, 90*24*3600_000).Draw(t, "ms ago")) * time.Millisecond)
		reference := session.NewReference(id, paidAt)
		text := reference.String()
		if len(text) != 9 || text[4] != '-' || strings.ContainsAny(text, "OILU") {
			t.Fatalf("%q", text)
		}
		for _, typed := range []string{
			text, strings.ToLower(text), strings.ReplaceAll(text, "-", ""), " " + strings.ReplaceAll(text, "-", " ") + "\n",
			strings.NewReplacer("0", "o", "1", "l").Replace(text), strings.NewReplacer("0", "O", "1", "I").Replace(text),
		} {
			if parsed, ok := session.ParseReference(typed); !ok || parsed != reference {
				t.Fatalf("ParseReference(%q) = %s, %t; want %s", typed, parsed, ok, reference)
			}
		}
		if got := reference.PaidAt(now); got.Unix() != paidAt.Unix() {
			t.Fatalf("%s of %s at %s: %s", text, paidAt, now, got)
		}
	})
}

// Written down, as references are on paper.
func TestReference_Text(t *testing.T) {
	id, err := session.ParseID(validID)
	if err != nil {
		t.Fatal(err)
	}
	if got := session.NewReference(id, time.UnixMilli(1795247160999)).String(); got != "ZPBG-2K1R" {
		t.Error(got)
	}
	other := session.NewReference(session.NewID("abcdefgh2345", false), time.UnixMilli(1795247160000))
	if other == session.NewReference(id, time.UnixMilli(1795247160000)) {
		t.Errorf("two sessions of one second are %s both", other)
	}
}

func TestParseReference_Invalid(t *testing.T) {
	for _, text := range []string{"", "-", "1001", "K7QM-3X2", "K7QM-3X2PP", "K7QM-3X2U", "K7QM.3X2P", "K7QM-3X2é", strings.Repeat("-", 100) + "K7QM3X2P", validID} {
		if got, ok := session.ParseReference(text); ok {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
}

// Only a receipt has a reference.
func TestSession_Reference(t *testing.T) {
	id := session.NewID("abcdefgh2345", false)
	for _, status := range []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled} {
		sess := session.Session{ID: id, Status: status, EndedAt: time.UnixMilli(1795247160000)}
		reference, paid := sess.Reference()
		if want := session.NewReference(id, sess.EndedAt); paid != (status == session.Completed) || paid && reference != want {
			t.Errorf("%s: %s, %t", status, reference, paid)
		}
	}
}
