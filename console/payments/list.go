package payments

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
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
	// pageSize is the number of payments on a page.
	pageSize = 50
	// countedReads bounds the reads for the totals of a day, each of store.MaxEnded entries.
	countedReads = 5
	// readsAtOnce is how many payments of a page are read at once for their refunds.
	readsAtOnce = 16
)

// listPage is the list of a merchant's payments, live or of test mode.
type listPage struct {
	Merchant *v1alpha1.Merchant
	links
	Test  bool
	Days  []DayTotals
	Today payments.Day
	Zone  string
	Rows  []paymentRow
	// Order is what was searched for; More: the order has more payments than these.
	Order string
	More  bool
	// Older is where the next page begins; empty: there is none. First: this page has the newest.
	Older string
	First bool
}

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
func (l links) Page(before string) string { return l.with("/payments", "before", before) }

// CSV is the file of a day.
func (l links) CSV(day payments.Day) string {
	return l.with("/payments.csv", "day", day.String())
}

// DayTotals are what was paid in a day.
type DayTotals struct {
	Name string // today, yesterday
	Day  payments.Day
	// Paid has an amount for each currency: a merchant's currency may have changed during the day.
	Paid []string
	// Payments says how many were paid.
	Payments template.HTML
	// More: the day has more payments than were counted.
	More bool
	// Since is when the oldest payment that is kept may be from; empty: all of the day are kept.
	Since template.HTML
}

// Date is the day as a shop owner says it.
func (d DayTotals) Date() string {
	from, _ := d.Day.Bounds()
	return from.Format("Mon 2 Jan")
}

// paymentRow is a payment in the list.
type paymentRow struct {
	ID     string
	Entry  string // of the feed, with its end; empty: the row is not from there
	Order  string
	Amount string
	Status paymentStatus
	At     template.HTML // when it ended; of a pending one, when it was created
	// Refunded is how much went back, and Asked how much more the merchant asks for; empty: nothing.
	Refunded, Asked string

	session session.Session
}

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

func (h *Handler) newPaymentRow(s *session.Session, zone *time.Location) paymentRow {
	at := s.EndedAt
	if at.IsZero() {
		at = s.CreatedAt
	}
	return paymentRow{
		ID: s.ID.String(), Order: s.Charge.OrderRef, Amount: h.amounts.Format(s.Charge.AmountCents, s.Currency),
		Status: paymentStatuses[s.Status], At: shopTime(at, zone, "2 Jan, 15:04"), session: *s,
	}
}

// addRefunds fills in what went back of the payments of the rows, which the list does not know: it has them as they ended.
func (h *Handler) addRefunds(ctx context.Context, rows []paymentRow) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for i := range rows {
		if rows[i].session.Status != session.Completed {
			continue
		}
		reads.Go(func() error {
			row := &rows[i]
			story, err := h.Store.ReadStory(ctx, row.session.ID)
			if errors.Is(err, store.ErrNotFound) || errors.Is(err, redis.ErrCorrupt) { // the page of the payment says so
				return nil
			}
			row.Refunded = h.positive(session.SumRefunds(story.Refunds), row.session.Currency)
			row.Asked = h.positive(story.AskedCents(), row.session.Currency)
			return err
		})
	}
	return reads.Wait()
}

// shopTime is a time on the clock of the shop; empty: there is none. No script replaces it by the viewer's own time: a day of payments is the shop's.
func shopTime(at time.Time, zone *time.Location, layout string) template.HTML {
	if at.IsZero() {
		return ""
	}
	const text = `<time datetime="%s" data-shop>%s</time>`
	return template.HTML(fmt.Sprintf(text, at.UTC().Format(time.RFC3339), at.In(zone).Format(layout))) //nolint:gosec // digits and English names of months
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

// List shows payments of a day and of those before, or of an order.
func (h *Handler) List(w http.ResponseWriter, r *web.Request) error {
	query := r.URL.Query()
	test, zone := query.Get("mode") == "test", r.Merchant.Spec.TimeZone.Location()
	page := listPage{
		Merchant: r.Merchant, links: newLinks(r.Merchant, test), Test: test, Zone: zone.String(), Today: payments.DayAt(h.Pages.Now(), zone),
		Order: strings.TrimSpace(query.Get("order")), First: true,
	}
	var before feed.EntryID
	if text := query.Get("before"); text != "" {
		page.First = false
		var ok bool
		if before, ok = feed.ParseEntryID(text); !ok {
			return web.ErrNotFound
		}
	}
	if err := h.fill(r.Context(), &page, before, zone); err != nil {
		return err
	}
	return h.Pages.Render(w, http.StatusOK, "payments", r.TitledView(h.Pages.Words.Text("payments.live"), page))
}

// fill reads what the page shows: payments of an order, or a page of the list, whose first one has the totals too.
func (h *Handler) fill(ctx context.Context, page *listPage, before feed.EntryID, zone *time.Location) error {
	if page.Order != "" {
		return h.fillOrder(ctx, page, zone)
	}
	account := newAccount(page.Merchant, page.Test)
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error { return h.fillRows(ctx, page, before, zone) })
	if page.First {
		yesterday, err := payments.ParseDay("yesterday", h.Pages.Now(), zone)
		if err != nil {
			return err
		}
		page.Days = []DayTotals{{Name: "today", Day: page.Today}, {Name: "yesterday", Day: yesterday}}
		for i := range page.Days {
			reads.Go(func() error {
				day, now := &page.Days[i], h.Pages.Now()
				if h.closed.get(account, day, now) {
					return nil
				}
				err := h.countDay(ctx, page.Merchant, page.Test, day, countedReads)
				if err == nil {
					h.closed.put(account, day, now)
				}
				return err
			})
		}
	}
	return reads.Wait()
}

func (h *Handler) fillOrder(ctx context.Context, page *listPage, zone *time.Location) error {
	found, err := h.Store.ReadOrderSessions(ctx, newAccount(page.Merchant, page.Test), page.Order)
	if err != nil {
		return err
	}
	page.More = found.More
	for i := range found.Sessions {
		page.Rows = append(page.Rows, h.newPaymentRow(&found.Sessions[i], zone))
	}
	return h.inTurn(ctx, page.Merchant, func() error { return h.addRefunds(ctx, page.Rows) })
}

func (h *Handler) fillRows(ctx context.Context, page *listPage, before feed.EntryID, zone *time.Location) error {
	found, err := h.readEnded(ctx, page.Merchant, page.Test, store.EndedQuery{Before: before, Limit: pageSize})
	if err != nil {
		return err
	}
	if found.Next != (feed.EntryID{}) {
		page.Older = found.Next.String()
	}
	for i := range found.Sessions {
		row := h.newPaymentRow(&found.Sessions[i].Session, zone)
		row.Entry = found.Sessions[i].Entry.String()
		page.Rows = append(page.Rows, row)
	}
	return h.inTurn(ctx, page.Merchant, func() error { return h.addRefunds(ctx, page.Rows) })
}

// Today adds up what was paid today, as far as a page of another subject needs it.
func (h *Handler) Today(ctx context.Context, merchant *v1alpha1.Merchant) (DayTotals, error) {
	today := DayTotals{Day: payments.DayAt(h.Pages.Now(), merchant.Spec.TimeZone.Location())}
	err := h.countDay(ctx, merchant, false, &today, 1) // the list counts on
	return today, err
}

// countDay adds up what was paid in a day, in at most so many reads. One more read tells whether there is more.
func (h *Handler) countDay(ctx context.Context, merchant *v1alpha1.Merchant, test bool, totals *DayTotals, reads int) error {
	query := store.EndedQuery{Status: session.Completed, Limit: store.MaxEnded}
	query.From, query.To = totals.Day.Bounds()
	var paid int64
	sums := map[string]int64{} // by currency
	for read := 0; ; read++ {
		if read == reads {
			query.Limit = 1
		}
		found, err := h.readEnded(ctx, merchant, test, query)
		if err != nil {
			return err
		}
		if found.Since.After(query.From) {
			totals.Since = shopTime(found.Since, totals.Day.Zone(), "2 Jan, 15:04")
		}
		if read == reads {
			totals.More = len(found.Sessions) > 0 || found.Next != feed.EntryID{}
			break
		}
		for i := range found.Sessions {
			paid++
			sums[found.Sessions[i].Currency] += found.Sessions[i].Charge.AmountCents
		}
		if query.Before = found.Next; query.Before == (feed.EntryID{}) {
			break
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		totals.Paid = append(totals.Paid, h.amounts.Format(sums[currency], currency))
	}
	totals.Payments = h.Pages.Words.Count("payments.count", paid)
	return nil
}

// PaidToday says how many payments were paid today, for a row of a list; empty: that takes too long to find out.
func (h *Handler) PaidToday(ctx context.Context, merchant *v1alpha1.Merchant) (template.HTML, error) {
	const most = 100
	query := store.EndedQuery{Status: session.Completed, Limit: most}
	query.From, query.To = payments.DayAt(h.Pages.Now(), merchant.Spec.TimeZone.Location()).Bounds()
	found, err := h.readEnded(ctx, merchant, false, query)
	switch more := found.Next != (feed.EntryID{}); {
	case errors.Is(err, ErrTooManyReads):
		return "", nil
	case err != nil:
		return "", err
	case more && len(found.Sessions) == 0: // among many that were not paid
		return "", nil
	case more:
		return h.Pages.Words.HTML("list.paid.more", len(found.Sessions)), nil
	}
	return h.Pages.Words.Count("list.paid", int64(len(found.Sessions))), nil
}
