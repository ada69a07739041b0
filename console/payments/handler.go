// Package payments shows a merchant's people what was paid: the list with the totals of a day, one payment with all that is known of it, and
// the file of a day, for a spreadsheet. It asks for refunds, and changes nothing else.
package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure a Handler. All but Downloads are required.
type Options struct {
	Store  Store
	Rights Rights
	Audit  Recorder
	Pages  *web.Pages
	// KeyNames returns the names of a Merchant's ApiKeys by their key ids, which come from the UIDs: what a status says, a tenant has written.
	KeyNames func(ctx context.Context, merchant *v1alpha1.Merchant) (map[string]string, error)
	// Attention returns what needs attention of a Merchant.
	Attention func(*web.Request) (web.Attention, error)
	Log       *slog.Logger
	// Downloads bounds the files that are made or sent at once. Default 32, and 2 of one person.
	Downloads *web.Inflight
}

// Store has payments: a store.Store, which says what each method does.
type Store interface {
	ReadEnded(ctx context.Context, account store.Account, query store.EndedQuery) (store.EndedPage, error)
	ReadPaid(ctx context.Context, account store.Account, reference session.Reference, now time.Time) ([]store.EndedSession, time.Time, error)
	ReadOrderSessions(ctx context.Context, account store.Account, orderRef string) (store.OrderSessions, error)
	ReadStory(ctx context.Context, id session.ID) (session.Story, error)
	OverdueRequests(ctx context.Context, account store.Account, age time.Duration) (store.Overdue, error)
	RequestRefundFor(ctx context.Context, id session.ID, asked store.AskedRefund) (store.RequestedRefund, error)
}

// Rights says what a person may do: a rights.Reviewer.
type Rights interface {
	May(ctx context.Context, subject authz.Subject, verb, namespace, name string) (bool, error)
}

// Recorder records actions: an audit.Recorder.
type Recorder interface {
	Record(ctx context.Context, entry audit.Entry)
}

// Handler handles requests about payments. It is safe for concurrent use.
type Handler struct {
	Options

	histories *histories
	reads     *web.Inflight // of ended payments, one after another
	workbooks *web.Inflight
}

// maxReads bounds the reads of ended payments at once, so that each tenant has one of them.
const maxReads = 2

// New returns a Handler.
func New(options Options) *Handler {
	if options.Downloads == nil {
		const most, mostOfPerson = 32, 2
		options.Downloads = web.NewInflight(most, mostOfPerson, ErrTooManyDownloads)
	}
	return &Handler{
		Options: options, histories: newHistories(), reads: web.NewInflight(maxReads, maxReads, ErrTooManyReads),
		workbooks: web.NewInflight(maxWorkbooks, maxPersonWorkbooks, ErrTooManyDownloads),
	}
}

// The errors of this room. Its requests also end with web.ErrNotFound and with errors of the Store.
var (
	// ErrNoPayment is the answer to what is no payment of the merchant.
	ErrNoPayment = errors.New("not a payment of this merchant")
	ErrNoDay     = errors.New("not a day")
	// ErrTooManyLines means that a day has more than a workbook may have.
	ErrTooManyLines = fmt.Errorf("more than %d lines, or %d bytes of texts, in a workbook", maxExcelLines, maxExcelText)
	ErrNotKept      = errors.New("not all payments of the day are kept any more")
	// ErrRefundUnknown means that the refund may have been asked for. To send its form again is safe.
	ErrRefundUnknown = errors.New("unknown whether the refund was asked for")
	// ErrTooManyDownloads means that the person, or all, have too many at once.
	ErrTooManyDownloads = errors.New("too many downloads at once")
	// ErrTooManyReads means that a read of payments did not get its turn in time.
	ErrTooManyReads = errors.New("too many reads of payments at once")
)
