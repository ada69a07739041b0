// Package payments shows a merchant's people what was paid: the list with the totals of a day, one payment with all that is known of it, and
// the CSV of a day. It only reads.
package payments

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/money"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure a Handler. All but Downloads are required.
type Options struct {
	Store Reader
	Pages *web.Pages
	// KeyNames returns the names of a Merchant's ApiKeys by their key ids, which come from the UIDs: what a status says, a tenant has written.
	KeyNames func(ctx context.Context, merchant *v1alpha1.Merchant) (map[string]string, error)
	Log      *slog.Logger
	// Downloads bounds the CSV files that are sent at once. Default 32, and 2 of one person.
	Downloads *web.Inflight
}

// Reader is what the pages read: a store.Store, which says what each does.
type Reader interface {
	ReadEnded(ctx context.Context, account store.Account, query store.EndedQuery) (store.EndedPage, error)
	ReadOrderSessions(ctx context.Context, account store.Account, orderRef string) (store.OrderSessions, error)
	ReadStory(ctx context.Context, id session.ID) (session.Story, error)
}

// Handler handles requests about payments. It is safe for concurrent use.
type Handler struct {
	Options

	amounts money.Formatter
	closed  *closedDays
}

// New returns a Handler.
func New(options Options) *Handler {
	if options.Downloads == nil {
		const most, mostOfPerson = 32, 2
		options.Downloads = web.NewInflight(most, mostOfPerson, ErrTooManyDownloads)
	}
	return &Handler{Options: options, amounts: money.NewFormatter(language.English), closed: newClosedDays()}
}

// Errors of requests about payments. web.ErrNotFound is another one, and those of the Reader.
var (
	// ErrNoPayment is the answer to what is no payment of the merchant.
	ErrNoPayment = errors.New("not a payment of this merchant")
	ErrNoDay     = errors.New("not a day")
	ErrNotKept   = errors.New("not all payments of the day are kept any more")
	// ErrTooManyDownloads means that the person, or all, have too many at once.
	ErrTooManyDownloads = errors.New("too many downloads at once")
)
