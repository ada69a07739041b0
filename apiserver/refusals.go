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
	// refusalLogInterval is the minimum time between two log lines about one key id and address.
	refusalLogInterval = time.Second
	// maxLoggedRefusals limits the memory; over it, refusals of further keys and addresses are not logged in this second.
	maxLoggedRefusals = 10_000
)

// refusalLog logs refused keys, for operators who look for the cause of a 401. A nil one logs nothing.
type refusalLog struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	logged map[refusal]struct{}
	since  time.Time // the beginning of the interval that logged is about
}

type refusal struct {
	keyID   string
	address netip.Addr
}

func newRefusalLog(log *slog.Logger, now func() time.Time) *refusalLog {
	return &refusalLog{log: log, now: now, logged: map[refusal]struct{}{}}
}

// refused logs a refusal. The key id is empty if the presented string has none.
func (l *refusalLog) refused(err error, keyID string, address netip.Addr) {
	if l == nil || (!errors.Is(err, store.ErrKeyRejected) && !isUnauthorized(err)) {
		return
	}
	if l.first(refusal{keyID, address}) {
		l.log.Info("refused API key", "reason", reasonOf(err), "keyID", keyID, "clientAddress", address.String())
	}
}

// first reports whether this refusal is the first of its kind in the interval.
func (l *refusalLog) first(r refusal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.since) >= refusalLogInterval || now.Before(l.since) {
		clear(l.logged)
		l.since = now
	}
	_, again := l.logged[r]
	if again || len(l.logged) >= maxLoggedRefusals {
		return false
	}
	l.logged[r] = struct{}{}
	return true
}
