// Package rail is the side of payment networks: their connectors inside the cluster ask what is to be paid and report payments. A merchant
// plays one with a test key.
package rail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

var (
	// ErrReportUnknown means that the report may have been recorded. To send it again is safe.
	ErrReportUnknown = errors.New("unknown whether the report was recorded")
	// ErrMerchantNotActive means that the merchant of a session may not be paid, so that no payment can hold it.
	ErrMerchantNotActive = errors.New("the merchant of the session is not active")
	// ErrMerchantUnknown means that this replica does not know the merchant of a session, which was not deleted.
	ErrMerchantUnknown = errors.New("the merchant of the session is not published, or cannot be read")
	// ErrTestKeysOnly is a live key on a path of test mode.
	ErrTestKeysOnly = errors.New("only test keys have this path")
)

// Options are those of a Handler.
type Options struct {
	Store      *store.Store
	Directory  *directory.Directory
	Gate       *caller.Gate
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Handler has Get, Hold, Settle, Refund and ListOwed for a rail, and SettleTest for a test key.
type Handler struct {
	store       *store.Store
	directory   *directory.Directory
	gate        *caller.Gate
	log         *slog.Logger
	settlements *prometheus.CounterVec
	holds       *prometheus.CounterVec
	unstored    *prometheus.CounterVec
	refunds     *prometheus.CounterVec
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{
		store: o.Store, directory: o.Directory, gate: o.Gate, log: o.Log,
		settlements: newSettlements(o.Registerer), holds: newHolds(o.Registerer), unstored: newUnstored(o.Registerer),
		refunds: newRefunds(o.Registerer),
	}
}

// report has the store record what a rail says of money that has moved. It counts even if the rail disconnects; the store has a timeout of its own.
// Without the store's answer the error is ErrReportUnknown too.
func report[Said, Recorded any](
	ctx context.Context, id session.ID, said Said, record func(context.Context, session.ID, Said) (Recorded, error),
) (Recorded, error) {
	recorded, err := record(context.WithoutCancel(ctx), id, said)
	if errors.Is(err, redis.ErrUnavailable) || errors.Is(err, redis.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrReportUnknown, err)
	}
	return recorded, err
}

// The modes of sessions, as metric labels.
const (
	modeLive = "live"
	modeTest = "test"
)

// newUnstored counts refused and failed payments of which a session keeps no more.
func newUnstored(registerer prometheus.Registerer) *prometheus.CounterVec {
	unstored := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_refused_payments_unstored_total",
		Help: "Reports of refused payments, and of payments that failed during the hold of another one, that were answered as usual but not stored, as their session keeps no more of them, by mode: live or test.",
	}, []string{"mode"})
	for _, mode := range []string{modeLive, modeTest} {
		unstored.WithLabelValues(mode)
	}
	return unstored
}
