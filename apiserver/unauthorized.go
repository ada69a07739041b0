package apiserver

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// The reasons of a 401. They label a metric and a log line; callers never see them.
const (
	reasonMissing           = "missing"
	reasonMalformed         = directory.ReasonMalformed
	reasonUnknown           = directory.ReasonUnknown
	reasonRotated           = directory.ReasonRotated // according to Redis or the published record
	reasonExpired           = directory.ReasonExpired
	reasonDisabled          = directory.ReasonDisabled
	reasonMerchantMissing   = directory.ReasonMerchantMissing
	reasonAddressNotAllowed = directory.ReasonAddressNotAllowed
	reasonDigestClaimed     = directory.ReasonDigestClaimed
	reasonWrongMode         = directory.ReasonWrongMode
	reasonInternalToken     = "internal_token" // of the internal listener; the others are about API keys
)

func unauthorizedReasons() []string {
	return []string{
		reasonMissing, reasonMalformed, reasonUnknown, reasonRotated, reasonExpired, reasonDisabled,
		reasonMerchantMissing, reasonAddressNotAllowed, reasonDigestClaimed, reasonWrongMode, reasonInternalToken,
	}
}

// unauthorizedError is a refused key. The store has an error of its own. The reason is for operators only.
type unauthorizedError struct{ reason string }

func isUnauthorized(err error) bool {
	_, ok := errors.AsType[unauthorizedError](err)
	return ok
}

func (e unauthorizedError) Error() string { return "unauthorized: " + e.reason }

// reasonOf returns the reason of a 401.
func reasonOf(err error) string {
	if refused, ok := errors.AsType[unauthorizedError](err); ok {
		return refused.reason
	}
	if errors.Is(err, authz.ErrUnauthenticated) {
		return reasonInternalToken
	}
	return reasonRotated // store.ErrKeyRejected
}

const (
	// refusedKeyLogInterval is the minimum time between two log lines about one key id and address.
	refusedKeyLogInterval = time.Second
	// maxLoggedKeys limits the memory; over it, further keys and addresses are not logged in this second.
	maxLoggedKeys = 10_000
)

// refusedKeyLog logs refused keys, for operators who look for the cause of a 401. A nil one logs nothing.
type refusedKeyLog struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	logged map[refusedKey]struct{}
	since  time.Time // the beginning of the interval that logged is about
}

type refusedKey struct {
	keyID   string
	address netip.Addr
}

func newRefusedKeyLog(log *slog.Logger, now func() time.Time) *refusedKeyLog {
	return &refusedKeyLog{log: log, now: now, logged: map[refusedKey]struct{}{}}
}

// refused logs a refused key. The key id is empty if the presented string has none.
func (l *refusedKeyLog) refused(err error, keyID string, address netip.Addr) {
	if l == nil || (!errors.Is(err, store.ErrKeyRejected) && !isUnauthorized(err)) {
		return
	}
	if l.first(refusedKey{keyID, address}) {
		l.log.Info("refused API key", "reason", reasonOf(err), "keyID", keyID, "clientAddress", address.String())
	}
}

// first reports whether this key is refused for the first time in the interval.
func (l *refusedKeyLog) first(key refusedKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.since) >= refusedKeyLogInterval || now.Before(l.since) {
		clear(l.logged)
		l.since = now
	}
	_, again := l.logged[key]
	if again || len(l.logged) >= maxLoggedKeys {
		return false
	}
	l.logged[key] = struct{}{}
	return true
}
