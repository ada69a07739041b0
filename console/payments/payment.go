package payments

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/rights"
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
	Description string // for the payer; empty: not given
	Tax, Tip    string // empty: not given
	Receipt     string // its reference on the payer's receipt; empty: it is not paid
	Reference   string // of the payment that settled it
	Reason      string // why that failed, in the rail's words
	Key         string // name of the API key that created it
	Created     template.HTML
	Expires     template.HTML
	Ended       template.HTML // empty: it has not
	PaidAt      template.HTML // as the rail says; empty: it did not
	Refunded    string        // how much of the payment went back; empty: nothing
	Asked       string        // how much more of it is asked for; empty: nothing
	Refunds     []refund      // of the payment that settled it
	MayRefund   bool          // something of it is left, and the viewer may ask for a refund
	Refused     []refusedPayment
	Owed        int // how many of these are still to be refunded
	// Removed: the session is not kept any more, and what is shown is its end.
	Removed bool
}

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

// refund is money that went back to the payer, or that the merchant has asked for.
type refund struct {
	Amount    string
	Reference string
	// Status is what became of it.
	Status paymentStatus
	// At is when it went back, or was rejected; empty: it waits. AskedAt is when it was asked for; empty: it was not.
	At, AskedAt template.HTML
	Reason      string // why it was asked for; empty: not given
	Rejected    string // why it was rejected, if the rail says
}

var refundStatuses = map[session.RefundStatus]paymentStatus{
	session.RefundRequested: {"status.refund.asked", ""},
	session.RefundConfirmed: {"status.refund.done", "on"},
	session.RefundRejected:  {"status.refund.rejected", "off"},
}

// refunds are of one payment, with what its merchant has asked for, the oldest first.
func newRefunds(clock web.Clock, all []session.Refund, requests []session.RefundRequest, currency string) (refunds []refund) {
	for _, asked := range requests {
		one := refund{
			Amount: clock.Words.Amount(asked.AmountCents, currency), Reference: asked.ID, Status: refundStatuses[asked.Status],
			At: clock.Short(web.Second, asked.DecidedAt), AskedAt: clock.Short(web.Second, asked.RequestedAt),
			Reason: asked.Reason, Rejected: asked.RejectReason,
		}
		if asked.RejectReason == session.AlreadyRefunded {
			one.Rejected = clock.Words.Text("refund.already")
		}
		refunds = append(refunds, one)
	}
	for _, one := range all {
		if slices.ContainsFunc(requests, func(asked session.RefundRequest) bool { return asked.ID == one.Ref }) {
			continue
		}
		refunds = append(refunds, refund{
			Amount: clock.Words.Amount(one.AmountCents, currency), Reference: one.Ref, Status: refundStatuses[session.RefundConfirmed],
			At: clock.Short(web.Second, one.At),
		})
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
	id, err := paymentID(r)
	if err != nil {
		return err
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
	if !removed && story.RefundableCents() > 0 {
		page.MayRefund, err = h.Rights.May(r.Context(), rights.NewSubject(r.Viewer), rights.RefundPayments, r.Merchant.Namespace, r.Merchant.Name)
		if err != nil {
			return err
		}
	}
	return h.Pages.Render(w, r.Request, http.StatusOK, "payment", r.TitledView(page.Amount, page))
}

// endedPayment returns a session as it was when it ended, from its entry in the feed, which is kept for longer than the session. The error is
// ErrNoPayment if that entry is of another session, or there is none.
func (h *Handler) endedPayment(ctx context.Context, id session.ID, text string) (session.Session, error) {
	entry, ok := feed.ParseEntryID(text)
	if !ok {
		return session.Session{}, ErrNoPayment
	}
	after := feed.EntryID{Millis: entry.Millis, Seq: entry.Seq + 1}
	found, err := h.Store.ReadEnded(ctx, store.Account{MerchantID: id.MerchantID(), TestMode: id.TestMode()}, store.EndedQuery{Before: after, Limit: 1, Money: true})
	if err != nil {
		return session.Session{}, err
	}
	if len(found.Sessions) == 0 || found.Sessions[0].Entry != entry || found.Sessions[0].ID != id {
		return session.Session{}, ErrNoPayment
	}
	return found.Sessions[0].Session, nil
}

func (h *Handler) paymentPage(ctx context.Context, merchant *v1alpha1.Merchant, story session.Story) (paymentPage, error) {
	s, clock := story.Session, h.Pages.Clock(ctx, merchant)
	words := clock.Words
	page := paymentPage{
		Merchant: merchant, links: newLinks(merchant, s.ID.TestMode()), Test: s.ID.TestMode(), Zone: clock.Zone(),
		ID: s.ID.String(), Amount: words.Amount(s.Charge.AmountCents, s.Currency), Status: paymentStatuses[s.Status],
		Explanation: statusExplanations[s.Status], Order: s.Charge.OrderRef, Description: s.Charge.Description, Tax: optional(words, s.Charge.TaxCents, s.Currency), Tip: optional(words, s.Charge.TipCents, s.Currency),
		Reference: s.PaymentRef, Reason: s.Reason,
		Created: clock.Short(web.Second, s.CreatedAt), Expires: clock.Short(web.Second, s.ExpiresAt), Ended: clock.Short(web.Second, s.EndedAt), PaidAt: clock.Short(web.Second, s.PaidAt),
	}
	if receipt, paid := s.Reference(); paid {
		page.Receipt = receipt.String()
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
			Amount: words.Amount(refused.AmountCents, refused.Currency), Why: why, Reference: refused.Ref, PaidAt: clock.Short(web.Second, refused.PaidAt),
			Returned: returned, Refunds: newRefunds(clock, refused.Refunds, nil, refused.Currency),
		})
	}
	page.Refunds = newRefunds(clock, story.Refunds, story.Requests, s.Currency)
	page.Refunded, page.Asked = positive(words, session.SumRefunds(story.Refunds), s.Currency), positive(words, story.AskedCents(), s.Currency)
	names, err := h.KeyNames(ctx, merchant)
	page.Key = cmp.Or(names[s.KeyID], words.Text("payment.key.deleted", s.KeyID))
	return page, err
}

// optional is an amount that a charge may have; empty: it has none.
func optional(words web.Words, amount *int64, currency string) string {
	if amount == nil {
		return ""
	}
	return words.Amount(*amount, currency)
}

// positive is an amount; empty: it is zero.
func positive(words web.Words, cents int64, currency string) string {
	if cents == 0 {
		return ""
	}
	return words.Amount(cents, currency)
}
