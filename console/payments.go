package console

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
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	// paymentsPageSize is the number of payments on a page.
	paymentsPageSize = 50
	// countedReads bounds the reads for the totals of a day, each of store.MaxEnded entries.
	countedReads = 5
)

// paymentReader is what the pages read of payments: a store.Store, which says what each does.
type paymentReader interface {
	ReadEnded(ctx context.Context, account store.Account, query store.EndedQuery) (store.EndedPage, error)
	ReadOrderSessions(ctx context.Context, account store.Account, orderRef string) (store.OrderSessions, error)
	ReadStory(ctx context.Context, id session.ID) (store.Story, error)
}

// errNoPayment is the answer to what is no payment of the merchant.
var errNoPayment = errors.New("not a payment of this merchant")

// paymentsPage is the list of a merchant's payments, live or of test mode.
type paymentsPage struct {
	Merchant *v1alpha1.Merchant
	paymentsLinks
	Test  bool
	Days  []dayTotals
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

// paymentsLinks are the addresses of the pages of one merchant's payments in one mode.
type paymentsLinks struct {
	Base string // of the merchant
	mode string
}

func newPaymentsLinks(merchant *v1alpha1.Merchant, test bool) paymentsLinks {
	links := paymentsLinks{Base: merchantURL(merchant)}
	if test {
		links.mode = "test"
	}
	return links
}

func (l paymentsLinks) with(page, name, value string) string {
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
func (l paymentsLinks) Live() string { return l.Base + "/payments" }

// Testing is the list of test payments.
func (l paymentsLinks) Testing() string { return l.Base + "/payments?mode=test" }

// Payment is the page of one.
func (l paymentsLinks) Payment(row paymentRow) string {
	page := l.Base + "/payments/" + row.ID
	if row.Entry == "" {
		return page
	}
	return page + "?" + url.Values{"entry": {row.Entry}}.Encode()
}

// List is the page with the newest payments.
func (l paymentsLinks) List() string { return l.with("/payments", "", "") }

// Page is the page of what is older than an entry.
func (l paymentsLinks) Page(before string) string { return l.with("/payments", "before", before) }

// CSV is the file of a day.
func (l paymentsLinks) CSV(day payments.Day) string {
	return l.with("/payments.csv", "day", day.String())
}

// dayTotals is what was paid in a day.
type dayTotals struct {
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
func (d dayTotals) Date() string {
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

func (c *console) newPaymentRow(s *session.Session, zone *time.Location) paymentRow {
	at := s.EndedAt
	if at.IsZero() {
		at = s.CreatedAt
	}
	return paymentRow{
		ID: s.ID.String(), Order: s.Charge.OrderRef, Amount: c.amounts.Format(s.Charge.AmountCents, s.Currency),
		Status: paymentStatuses[s.Status], At: shopTime(at, zone, "2 Jan, 15:04"),
	}
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

func (c *console) listPayments(w http.ResponseWriter, r *request) error {
	query := r.URL.Query()
	test, zone := query.Get("mode") == "test", r.Merchant.Spec.TimeZone.Location()
	page := paymentsPage{
		Merchant: r.Merchant, paymentsLinks: newPaymentsLinks(r.Merchant, test), Test: test, Zone: zone.String(), Today: payments.DayAt(c.now(), zone),
		Order: strings.TrimSpace(query.Get("order")), First: true,
	}
	var before feed.EntryID
	if text := query.Get("before"); text != "" {
		page.First = false
		var ok bool
		if before, ok = feed.ParseEntryID(text); !ok {
			return errNotFound
		}
	}
	if err := c.fillPayments(r.Context(), &page, before, zone); err != nil {
		return err
	}
	return c.pages.render(w, http.StatusOK, "payments", r.titledView(c.words.text("payments.live"), page))
}

// fillPayments reads what the page shows: payments of an order, or a page of the list, whose first one has the totals too.
func (c *console) fillPayments(ctx context.Context, page *paymentsPage, before feed.EntryID, zone *time.Location) error {
	account := newAccount(page.Merchant, page.Test)
	if page.Order != "" {
		found, err := c.payments.ReadOrderSessions(ctx, account, page.Order)
		for i := range found.Sessions {
			page.Rows = append(page.Rows, c.newPaymentRow(&found.Sessions[i], zone))
		}
		page.More = found.More
		return err
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error {
		found, err := c.payments.ReadEnded(ctx, account, store.EndedQuery{Before: before, Limit: paymentsPageSize})
		for i := range found.Sessions {
			row := c.newPaymentRow(&found.Sessions[i].Session, zone)
			row.Entry = found.Sessions[i].Entry.String()
			page.Rows = append(page.Rows, row)
		}
		if found.Next != (feed.EntryID{}) {
			page.Older = found.Next.String()
		}
		return err
	})
	if page.First {
		yesterday, err := payments.ParseDay("yesterday", c.now(), zone)
		if err != nil {
			return err
		}
		page.Days = []dayTotals{{Name: "today", Day: page.Today}, {Name: "yesterday", Day: yesterday}}
		for i := range page.Days {
			reads.Go(func() error {
				day, now := &page.Days[i], c.now()
				if c.closedDays.get(account, day, now) {
					return nil
				}
				err := c.countDay(ctx, account, day, countedReads)
				if err == nil {
					c.closedDays.put(account, day, now)
				}
				return err
			})
		}
	}
	return reads.Wait()
}

// countDay adds up what was paid in a day, in at most so many reads. One more read tells whether there is more.
func (c *console) countDay(ctx context.Context, account store.Account, totals *dayTotals, reads int) error {
	query := store.EndedQuery{Status: session.Completed, Limit: store.MaxEnded}
	query.From, query.To = totals.Day.Bounds()
	var paid int64
	sums := map[string]int64{} // by currency
	for read := 0; ; read++ {
		if read == reads {
			query.Limit = 1
		}
		found, err := c.payments.ReadEnded(ctx, account, query)
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
		totals.Paid = append(totals.Paid, c.amounts.Format(sums[currency], currency))
	}
	totals.Payments = c.words.count("payments.count", paid)
	return nil
}
