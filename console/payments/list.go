package payments

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	// pageSize is the number of rows on a page.
	pageSize = 50
	// countedReads bounds the reads for the counts of a page, each of store.MaxEnded entries.
	countedReads = 20
	// readsAtOnce is how many payments of a page are read at once for their refunds.
	readsAtOnce = 16
)

// listPage is the list of a merchant's payments, live or of test mode.
type listPage struct {
	Merchant *v1alpha1.Merchant
	links
	Test  bool
	Today payments.Day
	Zone  string
	// Totals are of today, and Attention is what a person should fix; nil: only the first page has them.
	Totals    *dayTotals
	Attention web.Attention
	// Days and Hours are pictures of what came in and went back.
	Days, Hours *chart
	Rows        []paymentRow
	// Search is what was searched for; More: its order has more payments than these.
	Search string
	More   bool
	// Searched is from when on payments were searched; empty: all were.
	Searched template.HTML
	// Older is where the next page begins; empty: there is none. First: this page has the newest.
	Older string
	First bool
}

// Tabs lead to the Merchant's other page.
func (p *listPage) Tabs() web.Tabs { return web.Tabs{Base: p.Base, At: "payments", Payments: true} }

// picture is a chart with what its parts are: day or hour.
type picture struct {
	ID    string
	Chart *chart
}

// Picture returns what the template of a chart takes.
func (*listPage) Picture(id string, of *chart) picture { return picture{id, of} }

// links are the addresses of the pages of one merchant's payments in one mode.
type links struct {
	Base string // of the merchant
	mode string
}

func newLinks(merchant *v1alpha1.Merchant, test bool) links {
	all := links{Base: web.MerchantURL(merchant)}
	if test {
		all.mode = "test"
	}
	return all
}

func (l links) with(page, name, value string) string {
	query := url.Values{}
	for name, value := range map[string]string{"mode": l.mode, name: value} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(query) == 0 {
		return l.Base + page
	}
	return l.Base + page + "?" + query.Encode()
}

// Live is the list of live payments.
func (l links) Live() string { return l.Base + "/payments" }

// Testing is the list of test payments.
func (l links) Testing() string { return l.Base + "/payments?mode=test" }

// Payment is the page of one.
func (l links) Payment(row paymentRow) string {
	page := l.Base + "/payments/" + row.ID
	if row.Entry == "" {
		return page
	}
	return page + "?" + url.Values{"entry": {row.Entry}}.Encode()
}

// List is the page with the newest payments.
func (l links) List() string { return l.with("/payments", "", "") }

// Page is the page of what is older than an entry.
func (l links) Page(before, search string) string {
	page := l.with("/payments", "before", before)
	if search != "" {
		page += "&" + url.Values{"q": {search}}.Encode()
	}
	return page
}

// CSV is the file of a day.
func (l links) CSV(day payments.Day) string { return l.with("/payments.csv", "day", day.String()) }

// Excel is the workbook of a day.
func (l links) Excel(day payments.Day) string { return l.with("/payments.xlsx", "day", day.String()) }

// dayTotals are what came in and went back today.
type dayTotals struct {
	Date string
	// Sums has one for each currency: a merchant's currency may have changed during the day.
	Sums []totals
	// More: the day has more payments than were counted, which are those since Counted.
	More    bool
	Counted template.HTML
	// Since is from when on payments of the day are kept; empty: all are.
	Since template.HTML
}

// totals are what came in and went back in a currency.
type totals struct {
	Payments template.HTML // how many were paid
	// Refused is money that arrived and did not pay an order; empty: none.
	Paid, Refused, Refunded, Net string
}

// paymentRow is a payment or a movement in the list.
type paymentRow struct {
	ID     string
	Entry  string // of the feed, with its end or movement; empty: the row is not from there
	Order  string
	Status paymentStatus
	At     template.HTML // when it ended or moved; of a pending one, when it was created
	// Amount came in, or would have, if Unpaid; Refunded went back; Net is what the row changes. Empty: nothing.
	Amount, Refunded, Net string
	Unpaid                bool
	// Back says how much of this payment went back, and Asked how much more the merchant asks for; empty: nothing.
	Back, Asked string

	session session.Session
	refused *session.Payment // of the movement
	refund  bool             // the movement is one
}

// IsRefund reports whether the row is money that went back.
func (r paymentRow) IsRefund() bool { return r.refund }

// paymentStatus is a status in the words of a shop owner.
type paymentStatus struct {
	Words string
	Class string // of its badge
}

var paymentStatuses = map[session.Status]paymentStatus{
	session.Pending:   {"status.waiting", ""},
	session.Completed: {"status.paid", "on"},
	session.Failed:    {"status.failed", "off"},
	session.Expired:   {"status.expired", ""},
	session.Cancelled: {"status.cancelled", ""},
}

// Statuses of rows of the list that are no status of a session.
var (
	statusRefunded   = paymentStatus{"status.refunded", "back"}
	statusPartly     = paymentStatus{"status.refunded.partly", "back"}
	statusRefund     = paymentStatus{"status.refund.row", "back"}
	statusToRefund   = paymentStatus{"status.torefund", "off"}
	statusSentBack   = paymentStatus{"status.sentback", "back"}
	statusArrivedBad = paymentStatus{"status.refused", "off"} // nobody knows whether it was sent back
)

func newPaymentRow(clock web.Clock, s *session.Session) paymentRow {
	at := s.EndedAt
	if at.IsZero() {
		at = s.CreatedAt
	}
	row := paymentRow{
		ID: s.ID.String(), Order: s.Charge.OrderRef, Amount: clock.Words.Amount(s.Charge.AmountCents, s.Currency),
		Status: paymentStatuses[s.Status], At: clock.Short(web.Minute, at), Unpaid: s.Status != session.Completed, session: *s,
	}
	if !row.Unpaid {
		row.Net = row.Amount
	}
	return row
}

// newEndedRow returns the row of an entry of the feed.
func newEndedRow(clock web.Clock, entry *store.EndedSession) paymentRow {
	row := newPaymentRow(clock, &entry.Session)
	row.Entry = entry.Entry.String()
	if entry.Refused != nil || entry.Refund != nil {
		row.At, row.Unpaid = clock.Short(web.Minute, entry.Entry.RecordedAt()), false
	}
	switch {
	case entry.Refused != nil:
		row.refused, row.Status = entry.Refused, statusArrivedBad
		row.Amount = clock.Words.Amount(entry.Refused.AmountCents, entry.Refused.Currency)
		row.Net = row.Amount
	case entry.Refund != nil:
		row.refund, row.Status, row.Amount = true, statusRefund, ""
		row.Refunded = clock.Words.Amount(entry.Refund.AmountCents, entry.Refund.Currency)
		row.Net = clock.Words.Amount(-entry.Refund.AmountCents, entry.Refund.Currency)
	}
	return row
}

// addRefunds fills in what went back of the payments of the rows, which the list does not know: it has them as they ended.
func (h *Handler) addRefunds(ctx context.Context, rows []paymentRow) error {
	words, ofSession := h.Pages.Words(ctx), map[session.ID][]*paymentRow{}
	for i := range rows {
		if row := &rows[i]; !row.refund && !row.Unpaid {
			ofSession[row.session.ID] = append(ofSession[row.session.ID], row)
		}
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for id, ofOne := range ofSession {
		reads.Go(func() error {
			story, err := h.Store.ReadStory(ctx, id)
			if errors.Is(err, store.ErrNotFound) || errors.Is(err, redis.ErrCorrupt) { // the page of the payment says so
				return nil
			}
			for _, row := range ofOne {
				addStory(words, row, &story)
			}
			return err
		})
	}
	return reads.Wait()
}

// addStory fills in what became of the money of a row.
func addStory(words web.Words, row *paymentRow, story *session.Story) {
	if row.refused != nil {
		at := slices.IndexFunc(story.Refused, func(p session.RefusedPayment) bool { return p.Ref == row.refused.Ref && p.Rail == row.refused.Rail })
		switch {
		case at < 0:
		case session.SumRefunds(story.Refused[at].Refunds) >= row.refused.AmountCents:
			row.Status = statusSentBack
		default:
			row.Status = statusToRefund
		}
		return
	}
	back, asked := session.SumRefunds(story.Refunds), story.AskedCents()
	switch {
	case back >= row.session.Charge.AmountCents && back > 0:
		row.Status = statusRefunded
	case back > 0:
		row.Status, row.Back = statusPartly, words.Amount(back, row.session.Currency)
	}
	row.Asked = positive(words, asked, row.session.Currency)
}

func newAccount(merchant *v1alpha1.Merchant, test bool) store.Account {
	return store.Account{MerchantID: published.ID(merchant.UID), TestMode: test}
}

// inTurn reads payments in the turn of the Merchant's tenant, whose next read begins only after as long as this one took: a read may take Redis some
// milliseconds, and a file, a total or the refunds of a page take many. So one tenant keeps Redis busy for half of the time at most. It also returns
// ErrTooManyReads.
func (h *Handler) inTurn(ctx context.Context, merchant *v1alpha1.Merchant, read func() error) error {
	end, err := h.reads.Await(ctx, merchant.Namespace, merchant.Namespace)
	if err != nil {
		return err
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), end) }()
	return read()
}

// readEnded is store.ReadEnded in the turn of the Merchant's tenant.
func (h *Handler) readEnded(ctx context.Context, merchant *v1alpha1.Merchant, test bool, query store.EndedQuery) (page store.EndedPage, err error) {
	err = h.inTurn(ctx, merchant, func() (err error) {
		page, err = h.Store.ReadEnded(ctx, newAccount(merchant, test), query)
		return err
	})
	return page, err
}

// List shows the newest payments, with what came in and went back today and on the days before, or what a search finds.
func (h *Handler) List(w http.ResponseWriter, r *web.Request) error {
	query := r.URL.Query()
	test, clock := query.Get("mode") == "test", h.Pages.Clock(r.Context(), r.Merchant)
	page := listPage{
		Merchant: r.Merchant, links: newLinks(r.Merchant, test), Test: test, Zone: clock.Zone(), Today: payments.DayAt(clock.Now, clock.Location),
		Search: strings.TrimSpace(cmp.Or(query.Get("q"), query.Get("order"))), First: true, // order: of bookmarks
	}
	var before feed.EntryID
	if text := query.Get("before"); text != "" {
		page.First = false
		var ok bool
		if before, ok = feed.ParseEntryID(text); !ok {
			return web.ErrNotFound
		}
	}
	if id, err := session.ParseID(page.Search); err == nil && id.MerchantID() == published.ID(r.Merchant.UID) {
		return r.LeadTo(w, "/payments/"+id.String())
	}
	if err := h.fill(r, &page, before, clock); err != nil {
		return err
	}
	return h.Pages.Render(w, r.Request, http.StatusOK, "payments", r.TitledView(clock.Words.Text("payments.live"), &page))
}

// fill reads what the page shows: what a search finds, or a page of the list, whose first one has the totals too.
func (h *Handler) fill(r *web.Request, page *listPage, before feed.EntryID, clock web.Clock) error {
	if page.Search != "" {
		return h.search(r.Context(), page, before, clock)
	}
	reads, ctx := errgroup.WithContext(r.Context())
	reads.Go(func() error { return h.fillRows(ctx, page, before, clock) })
	if page.First {
		reads.Go(func() error { return h.fillTotals(ctx, page, clock) })
		reads.Go(func() (err error) {
			page.Attention, err = h.Attention(r)
			return err
		})
	}
	return reads.Wait()
}

func (h *Handler) fillRows(ctx context.Context, page *listPage, before feed.EntryID, clock web.Clock) error {
	found, err := h.readEnded(ctx, page.Merchant, page.Test, store.EndedQuery{Before: before, Limit: pageSize, Money: true})
	if err != nil {
		return err
	}
	if found.Next != (feed.EntryID{}) {
		page.Older = found.Next.String()
	}
	for i := range found.Sessions {
		page.Rows = append(page.Rows, newEndedRow(clock, &found.Sessions[i]))
	}
	return h.inTurn(ctx, page.Merchant, func() error { return h.addRefunds(ctx, page.Rows) })
}

// fillTotals fills in what came in and went back today, and the pictures.
func (h *Handler) fillTotals(ctx context.Context, page *listPage, clock web.Clock) error {
	counted, err := h.count(ctx, page.Merchant, page.Test, countedReads)
	if err != nil {
		return err
	}
	currency := string(page.Merchant.Spec.Currency)
	page.Totals = newTotals(clock, &counted, currency)
	page.Days, page.Hours = newDaysChart(clock, &counted, currency), newHoursChart(clock, &counted, currency)
	return nil
}

func newTotals(clock web.Clock, counted *days, currency string) *dayTotals {
	today := counted.starts[0]
	all := &dayTotals{Date: clock.Words.Date("date.weekday", today), More: counted.more && counted.counted.After(today)}
	if all.More {
		all.Counted = clock.Short(web.Hour, counted.counted)
	}
	if counted.since.After(today) {
		all.Since = clock.Short(web.Hour, counted.since)
	}
	sums := slices.Clone(counted.days[0])
	sums.add(currencySum{currency: currency})
	own := slices.IndexFunc(sums, func(sum currencySum) bool { return sum.currency == currency })
	sums = slices.Insert(slices.Delete(slices.Clone(sums), own, own+1), 0, sums[own]) // the merchant's currency comes first
	for _, sum := range sums {
		format := func(cents int64) string { return clock.Words.Amount(cents, sum.currency) }
		all.Sums = append(all.Sums, totals{
			Payments: clock.Words.Count("payments.count", sum.payments), Paid: format(sum.paid), Refused: positive(clock.Words, sum.refused, sum.currency),
			Refunded: format(sum.refunded), Net: format(sum.net()),
		})
	}
	return all
}

// Any reports whether a payment of the Merchant has ended, in one of its modes.
func (h *Handler) Any(ctx context.Context, merchant *v1alpha1.Merchant) (bool, error) {
	for _, test := range []bool{false, true} {
		found, err := h.readEnded(ctx, merchant, test, store.EndedQuery{Limit: 1})
		if err != nil || len(found.Sessions) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// PaidToday says for each Merchant how many payments were paid today; empty: that takes too long to find out. The Merchants
// of a tenant are counted one after the other, in one turn of the tenant. With an error the texts are those known until then.
func (h *Handler) PaidToday(ctx context.Context, merchants []*v1alpha1.Merchant) ([]template.HTML, error) {
	texts := make([]template.HTML, len(merchants))
	ofTenant := map[string][]int{}
	for i, merchant := range merchants {
		ofTenant[merchant.Namespace] = append(ofTenant[merchant.Namespace], i)
	}
	turns, ctx := errgroup.WithContext(ctx)
	for _, own := range ofTenant {
		turns.Go(func() error {
			err := h.inTurn(ctx, merchants[own[0]], func() (err error) {
				for i := 0; i < len(own) && err == nil; i++ {
					texts[own[i]], err = h.paidToday(ctx, merchants[own[i]])
				}
				return err
			})
			if errors.Is(err, ErrTooManyReads) {
				return nil
			}
			return err
		})
	}
	return texts, turns.Wait()
}

// paidToday is PaidToday of one Merchant, in the turn of its tenant.
func (h *Handler) paidToday(ctx context.Context, merchant *v1alpha1.Merchant) (template.HTML, error) {
	const most = 100
	query := store.EndedQuery{Status: session.Completed, Limit: most}
	query.From, query.To = payments.DayAt(h.Pages.Now(), merchant.Spec.TimeZone.Location()).Bounds()
	found, err := h.Store.ReadEnded(ctx, newAccount(merchant, false), query)
	switch more := found.Next != (feed.EntryID{}); {
	case err != nil:
		return "", err
	case more && len(found.Sessions) == 0: // among many that were not paid
		return "", nil
	case more:
		return h.Pages.Words(ctx).HTML("list.paid.more", len(found.Sessions)), nil
	}
	return h.Pages.Words(ctx).Count("list.paid", int64(len(found.Sessions))), nil
}
