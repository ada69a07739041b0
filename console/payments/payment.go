package payments

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// paymentPage is one payment with its story.
type paymentPage struct {
	Merchant *v1alpha1.Merchant
	links
	Test   bool
	Zone   string
	ID     string
	Amount string
	Status paymentStatus
	// Explanation are the words for what the status means for the shop; empty: the status says it.
	Explanation string
	Order       string
	Tax, Tip    string // empty: not given
	Reference   string // of the payment that settled it
	Reason      string // why that failed, in the rail's words
	Key         string // name of the API key that created it
	Created     template.HTML
	Expires     template.HTML
	Ended       template.HTML // empty: it has not
	PaidAt      template.HTML // as the rail says; empty: it did not
	Refunded    string        // how much of the payment went back; empty: nothing
	Refunds     []refund      // of the payment that settled it
	Refused     []refusedPayment
	Owed        int // how many of these are still to be refunded
	// Removed: the session is not kept any more, and what is shown is its end.
	Removed bool
}

// toTheSecond is the layout of the times of one payment.
const toTheSecond = "2 Jan 2006, 15:04:05"

// refusedPayment is money that arrived and is to be sent back to the payer.
type refusedPayment struct {
	Amount    string
	Why       string // words
	Reference string
	PaidAt    template.HTML // empty: the rail did not say
	// Returned: all of it went back. Refunds are what did.
	Returned bool
	Refunds  []refund
}

// refund is money that went back to the payer.
type refund struct {
	Amount    string
	Reference string
	At        template.HTML
}

func (h *Handler) refunds(all []session.Refund, currency string, zone *time.Location) (refunds []refund) {
	for _, one := range all {
		refunds = append(refunds, refund{h.amounts.Format(one.AmountCents, currency), one.Ref, shopTime(one.At, zone, toTheSecond)})
	}
	return refunds
}

// statusExplanations are for who reads one payment.
var statusExplanations = map[session.Status]string{
	session.Pending:   "status.waiting.means",
	session.Failed:    "status.failed.means",
	session.Expired:   "status.expired.means",
	session.Cancelled: "status.cancelled.means",
}

// refusalReasons say why a payment is to be refunded.
var refusalReasons = map[session.Decision]string{
	session.Late:            "refused.late",
	session.Mismatched:      "refused.amount",
	session.MerchantDeleted: "refused.deleted",
}

// Show shows one payment.
func (h *Handler) Show(w http.ResponseWriter, r *web.Request) error {
	id, err := session.ParseID(r.PathValue("payment"))
	if err != nil || id.MerchantID() != published.ID(r.Merchant.UID) {
		return ErrNoPayment
	}
	story, err := h.Store.ReadStory(r.Context(), id)
	removed := errors.Is(err, store.ErrNotFound)
	if removed {
		story.Session, err = h.endedPayment(r.Context(), id, r.URL.Query().Get("entry"))
	}
	if err != nil {
		return err
	}
	page, err := h.paymentPage(r.Context(), r.Merchant, story)
	if err != nil {
		return err
	}
	page.Removed = removed
	return h.Pages.Render(w, http.StatusOK, "payment", r.TitledView(page.Amount, page))
}

// endedPayment returns a session as it was when it ended, from its entry in the feed, which is kept for longer than the session. The error is
// ErrNoPayment if that entry is of another session, or there is none.
func (h *Handler) endedPayment(ctx context.Context, id session.ID, text string) (session.Session, error) {
	entry, ok := feed.ParseEntryID(text)
	if !ok {
		return session.Session{}, ErrNoPayment
	}
	after := feed.EntryID{Millis: entry.Millis, Seq: entry.Seq + 1}
	found, err := h.Store.ReadEnded(ctx, store.Account{MerchantID: id.MerchantID(), TestMode: id.TestMode()}, store.EndedQuery{Before: after, Limit: 1})
	if err != nil {
		return session.Session{}, err
	}
	if len(found.Sessions) == 0 || found.Sessions[0].Entry != entry || found.Sessions[0].ID != id {
		return session.Session{}, ErrNoPayment
	}
	return found.Sessions[0].Session, nil
}

func (h *Handler) paymentPage(ctx context.Context, merchant *v1alpha1.Merchant, story session.Story) (paymentPage, error) {
	s, zone := story.Session, merchant.Spec.TimeZone.Location()
	page := paymentPage{
		Merchant: merchant, links: newLinks(merchant, s.ID.TestMode()), Test: s.ID.TestMode(), Zone: zone.String(),
		ID: s.ID.String(), Amount: h.amounts.Format(s.Charge.AmountCents, s.Currency), Status: paymentStatuses[s.Status],
		Explanation: statusExplanations[s.Status], Order: s.Charge.OrderRef, Tax: h.part(s.Charge.TaxCents, s.Currency), Tip: h.part(s.Charge.TipCents, s.Currency),
		Reference: s.PaymentRef, Reason: s.Reason,
		Created: shopTime(s.CreatedAt, zone, toTheSecond), Expires: shopTime(s.ExpiresAt, zone, toTheSecond), Ended: shopTime(s.EndedAt, zone, toTheSecond), PaidAt: shopTime(s.PaidAt, zone, toTheSecond),
	}
	for _, refused := range story.Refused {
		why := refusalReasons[refused.Decision]
		if refused.Decision == session.Late && s.Status == session.Completed {
			why = "refused.again"
		}
		if refused.Decision == session.Mismatched && refused.Currency != s.Currency {
			why = "refused.currency"
		}
		returned := session.SumRefunds(refused.Refunds) >= refused.AmountCents
		if !returned {
			page.Owed++
		}
		page.Refused = append(page.Refused, refusedPayment{
			Amount: h.amounts.Format(refused.AmountCents, refused.Currency), Why: why, Reference: refused.Ref, PaidAt: shopTime(refused.PaidAt, zone, toTheSecond),
			Returned: returned, Refunds: h.refunds(refused.Refunds, refused.Currency, zone),
		})
	}
	if page.Refunds = h.refunds(story.Refunds, s.Currency, zone); len(page.Refunds) > 0 {
		page.Refunded = h.amounts.Format(session.SumRefunds(story.Refunds), s.Currency)
	}
	names, err := h.KeyNames(ctx, merchant)
	page.Key = cmp.Or(names[s.KeyID], h.Pages.Words.Text("payment.key.deleted", s.KeyID))
	return page, err
}

// part is an amount that a charge may have; empty: it has none.
func (h *Handler) part(amount *int64, currency string) string {
	if amount == nil {
		return ""
	}
	return h.amounts.Format(*amount, currency)
}
