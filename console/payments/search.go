package payments

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/currency"

	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// searchReads bounds the reads of one page of a search, each of store.MaxEnded entries.
const searchReads = 10

// search finds payments by their order, by the reference of a receipt, a payment or a refund, or by an amount. The index of orders has
// pending ones too, and the reference of a receipt says when it was paid. For the rest the feed is searched as far as searchReads reach,
// and the page says how far that was.
func (h *Handler) search(ctx context.Context, page *listPage, before feed.EntryID, clock web.Clock) error {
	if page.First {
		if err := h.searchIndexes(ctx, page, clock); err != nil {
			return err
		}
	}
	next, err := h.searchFeed(ctx, page, before, clock)
	if err != nil {
		return err
	}
	if next != (feed.EntryID{}) {
		page.Older, page.Searched = next.String(), clock.Short(web.Minute, next.RecordedAt())
	}
	return h.inTurn(ctx, page.Merchant, func() error { return h.addRefunds(ctx, page.Rows) })
}

// searchIndexes finds what needs no search of the feed: the payments of an order, and the payment of a receipt.
func (h *Handler) searchIndexes(ctx context.Context, page *listPage, clock web.Clock) error {
	account := newAccount(page.Merchant, page.Test)
	found, err := h.Store.ReadOrderSessions(ctx, account, page.Search)
	if err != nil {
		return err
	}
	page.More = found.More
	for i := range found.Sessions {
		page.Rows = append(page.Rows, newPaymentRow(clock, &found.Sessions[i]))
	}
	reference, ok := session.ParseReference(page.Search)
	if !ok {
		return nil
	}
	return h.inTurn(ctx, page.Merchant, func() error {
		paid, _, err := h.Store.ReadPaid(ctx, account, reference, clock.Now)
		for i := range paid {
			page.addEnded(clock, &paid[i])
		}
		return err
	})
}

// addEnded adds the row of an entry of the feed, unless it is the end of a session that the page has.
func (p *listPage) addEnded(clock web.Clock, entry *store.EndedSession) {
	row := newEndedRow(clock, entry)
	if row.refused == nil && !row.refund && slices.ContainsFunc(p.Rows, func(known paymentRow) bool {
		return known.ID == row.ID && known.refused == nil && !known.refund
	}) {
		return
	}
	p.Rows = append(p.Rows, row)
}

// searchFeed searches a part of the feed, and returns where the next one begins; zero: all is searched.
func (h *Handler) searchFeed(ctx context.Context, page *listPage, before feed.EntryID, clock web.Clock) (next feed.EntryID, err error) {
	wanted := newNeedle(clock.Words, page.Search, string(page.Merchant.Spec.Currency))
	query := store.EndedQuery{Before: before, Limit: store.MaxEnded, Money: true}
	for range searchReads {
		found, err := h.readEnded(ctx, page.Merchant, page.Test, query)
		if err != nil {
			return next, err
		}
		for i := range found.Sessions {
			if !wanted.matches(&found.Sessions[i]) {
				continue
			}
			page.addEnded(clock, &found.Sessions[i])
			if len(page.Rows) >= pageSize {
				return found.Sessions[i].Entry, nil
			}
		}
		if query.Before = found.Next; query.Before == (feed.EntryID{}) {
			break
		}
	}
	return query.Before, nil
}

// needle is what a search looks for.
type needle struct {
	text string
	// cents is the text as an amount of the merchant's currency; negative: it is none.
	cents int64
}

func newNeedle(words web.Words, text, code string) needle {
	n := needle{text: store.OrderText(text), cents: -1}
	amount := strings.TrimLeft(strings.TrimSpace(strings.Replace(strings.ToUpper(text), code, "", 1)), "+-−")
	amount = strings.TrimFunc(amount, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Sc, r) || r == '-' || r == '−' })
	if _, err := currency.ParseISO(code); err != nil {
		return n
	}
	if cents, ok := words.ParseAmount(amount, code); ok {
		n.cents = cents
	}
	return n
}

// matches reports whether the entry has what is looked for.
func (n needle) matches(entry *store.EndedSession) bool {
	cents, ref, refund := entry.Charge.AmountCents, entry.PaymentRef, ""
	switch {
	case entry.Refused != nil:
		cents, ref = entry.Refused.AmountCents, entry.Refused.Ref
	case entry.Refund != nil:
		cents, ref, refund = entry.Refund.AmountCents, entry.Refund.PaymentRef, entry.Refund.Ref
	}
	return n.cents == cents || n.text == ref || refund != "" && n.text == refund ||
		entry.Charge.OrderRef != "" && n.text == store.OrderText(entry.Charge.OrderRef)
}
