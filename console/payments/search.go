package payments

import (
	"context"
	"slices"
	"strings"
	"unicode"

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
	indexed, more, err := h.searchIndexes(ctx, page, clock)
	if err != nil {
		return err
	}
	if page.First {
		page.Rows, page.More = indexed, more
	}
	next, err := h.searchFeed(ctx, page, indexed, before, clock)
	if err != nil {
		return err
	}
	if next != (feed.EntryID{}) {
		page.Older, page.Searched = next.String(), clock.Short(web.Minute, next.RecordedAt())
	}
	return h.inTurn(ctx, page.Merchant, func() error { return h.addRefunds(ctx, page.Rows) })
}

// searchIndexes finds what needs no search of the feed: the payments of an order, and the payment of a receipt. They are on the first page, and
// further pages leave them out. more: the order has more payments than these.
func (h *Handler) searchIndexes(ctx context.Context, page *listPage, clock web.Clock) (rows []paymentRow, more bool, err error) {
	account := newAccount(page.Merchant, page.Test)
	found, err := h.Store.ReadOrderSessions(ctx, account, page.Search)
	if err != nil {
		return nil, false, err
	}
	for i := range found.Sessions {
		rows = append(rows, newPaymentRow(clock, &found.Sessions[i]))
	}
	reference, ok := session.ParseReference(page.Search)
	if !ok {
		return rows, found.More, nil
	}
	err = h.inTurn(ctx, page.Merchant, func() error {
		paid, _, err := h.Store.ReadPaid(ctx, account, reference, clock.Now)
		for i := range paid {
			if !hasEnd(rows, &paid[i]) {
				rows = append(rows, newEndedRow(clock, &paid[i]))
			}
		}
		return err
	})
	return rows, found.More, err
}

// hasEnd reports whether the entry is the end of a session that one of the rows shows.
func hasEnd(rows []paymentRow, entry *store.EndedSession) bool {
	if entry.Refused != nil || entry.Refund != nil {
		return false
	}
	return slices.ContainsFunc(rows, func(row paymentRow) bool { return row.session.ID == entry.ID && row.refused == nil && !row.refund })
}

// searchFeed searches a part of the feed for what the indexes do not have, and returns where the next one begins; zero: all is searched.
func (h *Handler) searchFeed(
	ctx context.Context, page *listPage, indexed []paymentRow, before feed.EntryID, clock web.Clock,
) (next feed.EntryID, err error) {
	wanted := newNeedle(clock.Words, page.Search, string(page.Merchant.Spec.Currency))
	query := store.EndedQuery{Before: before, Limit: store.MaxEnded, Money: true}
	for range searchReads {
		found, err := h.readEnded(ctx, page.Merchant, page.Test, query)
		if err != nil {
			return next, err
		}
		for i := range found.Sessions {
			entry := &found.Sessions[i]
			if !wanted.matches(entry) || hasEnd(indexed, entry) {
				continue
			}
			page.Rows = append(page.Rows, newEndedRow(clock, entry))
			if len(page.Rows) >= pageSize {
				return entry.Entry, nil
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
	// number is the amount in the text, as it was typed, and unit the currency's code or symbol beside it; empty: the merchant's currency is
	// meant, which is own.
	number, unit, own string

	words web.Words
	// cents has the number in the minor unit of each currency that entries had; negative: it is no amount of that currency.
	cents map[string]int64
}

func newNeedle(words web.Words, text, own string) needle {
	number := strings.TrimFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	before, after, _ := strings.Cut(text, number)
	sign := func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("+-−", r) }
	return needle{
		text: store.OrderText(text), number: number, unit: strings.TrimFunc(before, sign) + strings.TrimFunc(after, sign), own: own,
		words: words, cents: map[string]int64{},
	}
}

// matches reports whether the entry has what is looked for.
func (n needle) matches(entry *store.EndedSession) bool {
	cents, currency, ref, refund := entry.Charge.AmountCents, entry.Currency, entry.PaymentRef, ""
	switch {
	case entry.Refused != nil:
		cents, currency, ref = entry.Refused.AmountCents, entry.Refused.Currency, entry.Refused.Ref
	case entry.Refund != nil:
		cents, currency, ref, refund = entry.Refund.AmountCents, entry.Refund.Currency, entry.Refund.PaymentRef, entry.Refund.Ref
	}
	return n.text == ref || refund != "" && n.text == refund || entry.Charge.OrderRef != "" && n.text == store.OrderText(entry.Charge.OrderRef) ||
		n.inCents(currency) == cents
}

// inCents returns the number in the minor unit of a currency; negative: the text is no amount of this currency.
func (n needle) inCents(currency string) int64 {
	cents, known := n.cents[currency]
	if !known {
		cents = -1
		if parsed, ok := n.words.ParseAmount(n.number, currency); ok && n.means(currency) {
			cents = parsed
		}
		n.cents[currency] = cents
	}
	return cents
}

// means reports whether the text means amounts of the currency. A sign that several currencies have, such as $, means the merchant's own.
func (n needle) means(currency string) bool {
	if _, narrow := n.words.Symbols(n.own); n.unit == "" || strings.EqualFold(n.unit, narrow) {
		return currency == n.own
	}
	symbol, _ := n.words.Symbols(currency)
	return strings.EqualFold(n.unit, currency) || strings.EqualFold(n.unit, symbol)
}
