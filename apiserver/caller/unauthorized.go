package caller

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
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// The reasons of a 401 beside those of the directory. They label a metric and a log line; callers never see them.
const (
	reasonMissing       = "missing"
	reasonInternalToken = "internal_token" // of the internal listener; the others are about API keys
)

// UnauthorizedError is a refused key. The store has an error of its own. The reason is for operators only.
type UnauthorizedError struct{ Reason string }

func (e UnauthorizedError) Error() string { return "unauthorized: " + e.Reason }

// unauthorizedReason returns why an error has the response 401; empty: it has another one.
func unauthorizedReason(err error) string {
	if refused, ok := errors.AsType[UnauthorizedError](err); ok {
		return refused.Reason
	}
	switch {
	case errors.Is(err, admission.ErrKeyRejected):
		return directory.ReasonRotated
	case errors.Is(err, authz.ErrUnauthenticated):
		return reasonInternalToken
	}
	return ""
}

// Reasons counts requests with response 401, of both listeners.
type Reasons struct{ total *prometheus.CounterVec }

// NewReasons registers the count.
func NewReasons(registerer prometheus.Registerer) *Reasons {
	total := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_http_unauthorized_total",
		Help: "Requests with response 401, by reason, without test keys. Clients do not see the reason.",
	}, []string{"reason"})
	for _, reason := range []string{
		reasonMissing, directory.ReasonMalformed, directory.ReasonUnknown, directory.ReasonRotated, directory.ReasonExpired,
		directory.ReasonDisabled, directory.ReasonMerchantMissing, directory.ReasonAddressNotAllowed, directory.ReasonDigestClaimed,
		directory.ReasonWrongMode, reasonInternalToken,
	} {
		total.WithLabelValues(reason) // start at 0, so that rate() sees the first one
	}
	return &Reasons{total}
}

// Count counts a request at its end, if its response is 401.
func (r *Reasons) Count(e *web.Event) {
	if reason := unauthorizedReason(e.Err); reason != "" && !e.TestMode {
		r.total.WithLabelValues(reason).Inc()
	}
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

// add logs a request at its end, if its key was refused.
func (l *refusedKeyLog) add(e *web.Event) {
	if l == nil {
		return
	}
	if reason := unauthorizedReason(e.Err); reason != "" && l.first(refusedKey{e.KeyID, e.ClientAddress}) {
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
