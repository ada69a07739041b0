package apiserver

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
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

// newReasons counts requests with response 401.
func newReasons(registerer prometheus.Registerer) *prometheus.CounterVec {
	reasons := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_http_unauthorized_total",
		Help: "Requests with response 401, by reason. Clients do not see the reason.",
	}, []string{"reason"})
	for _, reason := range []string{
		reasonMissing, reasonMalformed, reasonUnknown, reasonRotated, reasonExpired, reasonDisabled,
		reasonMerchantMissing, reasonAddressNotAllowed, reasonDigestClaimed, reasonWrongMode, reasonInternalToken,
	} {
		reasons.WithLabelValues(reason) // start at 0, so that rate() sees the first one
	}
	return reasons
}

// unauthorizedError is a refused key. The store has an error of its own. The reason is for operators only.
type unauthorizedError struct{ reason string }

func (e unauthorizedError) Error() string { return "unauthorized: " + e.reason }

// unauthorizedReason returns why an error has the response 401; empty: it has another one.
func unauthorizedReason(err error) string {
	if refused, ok := errors.AsType[unauthorizedError](err); ok {
		return refused.reason
	}
	switch {
	case errors.Is(err, store.ErrKeyRejected):
		return reasonRotated
	case errors.Is(err, authz.ErrUnauthenticated):
		return reasonInternalToken
	}
	return ""
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

// add logs the refused key of a request.
func (l *refusedKeyLog) add(e *web.Event, reason string) {
	if l != nil && l.first(refusedKey{e.KeyID, e.ClientAddress}) {
		l.log.Info("refused API key", "reason", reason, "keyID", e.KeyID, "clientAddress", e.ClientAddress.String())
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
