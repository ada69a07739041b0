package apiserver

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// An attacker cannot fill the log or the memory with refused keys.
func TestRefusedKeyLog_Bounds(t *testing.T) {
	buffer := &logtest.Buffer{}
	now := time.Unix(1_800_000_000, 0)
	l := newRefusedKeyLog(slog.New(slog.NewJSONHandler(buffer, nil)), func() time.Time { return now })
	lines := func() int { return strings.Count(buffer.String(), "refused API key") }
	home, foreign := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")

	for range 100 {
		l.refused(store.ErrKeyRejected, "key", home)
		l.refused(unauthorizedError{reasonExpired}, "key", foreign)
		l.refused(unauthorizedError{reasonExpired}, "other", home)
		l.refused(store.ErrNotFound, "found", home) // the key was accepted
		l.refused(nil, "accepted", home)
	}
	if lines() != 3 {
		t.Errorf("%d lines about 3 pairs of key id and address:\n%s", lines(), buffer)
	}
	now = now.Add(refusedKeyLogInterval)
	l.refused(store.ErrKeyRejected, "key", home)
	if lines() != 4 {
		t.Errorf("%d lines a second later, want 4", lines())
	}

	address := home
	for range 2 * maxLoggedKeys {
		address = address.Next()
		l.refused(store.ErrKeyRejected, "key", address)
	}
	if len(l.logged) != maxLoggedKeys || lines() != 4+maxLoggedKeys-1 {
		t.Errorf("%d pairs and %d lines, want at most %d pairs a second", len(l.logged), lines(), maxLoggedKeys)
	}
	var none *refusedKeyLog
	none.refused(store.ErrKeyRejected, "key", home)
}
