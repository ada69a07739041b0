package caller

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// An attacker cannot fill the log or the memory with refused keys.
func TestRefusedKeyLog_Bounds(t *testing.T) {
	buffer := &logtest.Buffer{}
	now := time.Unix(1_800_000_000, 0)
	l := newRefusedKeyLog(slog.New(slog.NewJSONHandler(buffer, nil)), func() time.Time { return now })
	lines := func() int { return strings.Count(buffer.String(), "refused API key") }
	home, foreign := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")

	add := func(keyID string, address netip.Addr) {
		l.add(&web.Event{KeyID: keyID, ClientAddress: address, Err: admission.ErrKeyRejected})
	}

	for range 100 {
		add("key", home)
		add("key", foreign)
		add("other", home)
		l.add(&web.Event{KeyID: "found", ClientAddress: home, Err: store.ErrNotFound}) // the key was accepted
		l.add(&web.Event{KeyID: "accepted", ClientAddress: home})
	}
	if lines() != 3 {
		t.Errorf("%d lines about 3 pairs of key id and address:\n%s", lines(), buffer)
	}
	now = now.Add(refusedKeyLogInterval)
	add("key", home)
	if lines() != 4 {
		t.Errorf("%d lines a second later, want 4", lines())
	}

	address := home
	for range 2 * maxLoggedKeys {
		address = address.Next()
		add("key", address)
	}
	if len(l.logged) != maxLoggedKeys || lines() != 4+maxLoggedKeys-1 {
		t.Errorf("%d pairs and %d lines, want at most %d pairs a second", len(l.logged), lines(), maxLoggedKeys)
	}
	var none *refusedKeyLog
	none.add(&web.Event{KeyID: "key", ClientAddress: home, Err: admission.ErrKeyRejected})
}

// Only a refused key has a reason.
func TestUnauthorizedReason(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"accepted", nil, ""},
		{"accepted, but no such session", store.ErrNotFound, ""},
		{"refused by Redis", fmt.Errorf("admit: %w", admission.ErrKeyRejected), directory.ReasonRotated},
		{"refused by the directory", UnauthorizedError{directory.ReasonDisabled}, directory.ReasonDisabled},
		{"expired, and refused by Redis", fmt.Errorf("%w: %w", UnauthorizedError{directory.ReasonExpired}, admission.ErrKeyRejected), directory.ReasonExpired},
		{"a token of the internal listener", authz.ErrUnauthenticated, reasonInternalToken},
		{"a token without the right", authz.ErrForbidden, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := unauthorizedReason(row.err); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}
