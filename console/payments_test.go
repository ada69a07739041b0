package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// fakePayments has ended sessions by account, the newest first.
type fakePayments struct {
	*store.Store

	all map[store.Account][]store.EndedSession
	// failAt is the number of the read that fails; 0: none does. Reads are not concurrent then.
	failAt int
	reads  atomic.Int64
	// kept is since when entries are kept.
	kept time.Time
}

func (f *fakePayments) ReadEnded(_ context.Context, account store.Account, query store.EndedQuery) (store.EndedPage, error) {
	if f.reads.Add(1) == int64(f.failAt) {
		return store.EndedPage{}, fmt.Errorf("%w: a test", redis.ErrUnavailable)
	}
	page := store.EndedPage{Since: query.From}
	if f.kept.After(query.From) {
		page.Since = f.kept
	}
	for _, ended := range f.all[account] {
		recorded := ended.Entry.RecordedAt()
		switch {
		case query.Before != feed.EntryID{} && ended.Entry.Millis*1e6+ended.Entry.Seq >= query.Before.Millis*1e6+query.Before.Seq,
			!query.To.IsZero() && !recorded.Before(query.To), recorded.Before(query.From), !inQuery(query, &ended):
			continue
		case len(page.Sessions) == query.Limit:
			page.Next = page.Sessions[len(page.Sessions)-1].Entry
			return page, nil
		}
		page.Sessions = append(page.Sessions, ended)
	}
	return page, nil
}

// inQuery reports whether a query lists an entry.
func inQuery(query store.EndedQuery, entry *store.EndedSession) bool {
	if entry.Refused != nil || entry.Refund != nil {
		return query.Money
	}
	return query.Status == "" || entry.Status == query.Status
}

// ReadPaid finds the payment of a receipt.
func (f *fakePayments) ReadPaid(_ context.Context, account store.Account, reference session.Reference, _ time.Time) (found []store.EndedSession, since time.Time, err error) {
	for _, entry := range f.all[account] {
		if other, _ := entry.Session.Reference(); other == reference {
			found = append(found, entry)
		}
	}
	return found, since, nil
}

// OverdueRequests finds only what a Store has.
func (f *fakePayments) OverdueRequests(ctx context.Context, account store.Account, age time.Duration) (store.Overdue, error) {
	if f.Store == nil {
		return store.Overdue{}, nil
	}
	return f.Store.OverdueRequests(ctx, account, age)
}

// ReadStory finds only what a Store has.
func (f *fakePayments) ReadStory(ctx context.Context, id session.ID) (session.Story, error) {
	if f.Store == nil {
		return session.Story{}, store.ErrNotFound
	}
	return f.Store.ReadStory(ctx, id)
}

// berlin is the zone of the shop: its day begins at 23:00 UTC, in winter.
func berlin(m *v1alpha1.Merchant) { m.Spec.TimeZone = "Europe/Berlin" }

// ended is a session of the merchant that ended, the newer the smaller n is among those of one time.
func ended(m *v1alpha1.Merchant, n int, status session.Status, cents int64, at time.Time) store.EndedSession {
	const most = 100_000
	return store.EndedSession{
		Session: session.Session{
			ID: session.NewID(published.ID(m.UID), false), Status: status, Currency: "EUR", CreatedAt: at.Add(-time.Minute), EndedAt: at,
			Charge: session.Charge{AmountCents: cents, OrderRef: "order-" + strconv.Itoa(n)},
		},
		Entry: feed.EntryID{Millis: uint64(at.UnixMilli()), Seq: uint64(most - n)},
	}
}

func live(m *v1alpha1.Merchant) store.Account { return store.Account{MerchantID: published.ID(m.UID)} }

// shownText is what a part of a page says, from a text in it to another one.
func shownText(page, from, to string) string {
	_, part, _ := strings.Cut(page, from)
	part, _, _ = strings.Cut(part, to)
	part = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(part, " ")
	return strings.Join(strings.Fields(strings.ReplaceAll(part, "\u00a0", " ")), " ")
}

// shownToday is what a page says of today, without the pictures.
func shownToday(page string) string {
	return shownText(page, `<h2 id="today-title">`, `<div class="charts">`)
}

// shownRows are the rows of the table of a picture, day or hour, that are not zero.
func shownRows(page, picture string) []string {
	var rows []string
	table := page[strings.Index(page, `<div class="charts">`):]
	heading := map[string]string{"day": "Day", "hour": "From"}[picture]
	_, table, _ = strings.Cut(table, `<th scope="col">`+heading+`</th>`)
	table, _, _ = strings.Cut(table, "</table>")
	for row := range strings.SplitSeq(table, "<tr>") {
		if text := shownText(row+"</tr>", `<th scope="row">`, "</tr>"); text != "" && !strings.HasSuffix(text, "€0.00 €0.00 €0.00") {
			rows = append(rows, text)
		}
	}
	return rows
}

// refused is a payment of a session that did not take it, and refunded is money that went back; the newer the smaller n.
func refused(m *v1alpha1.Merchant, n int, cents int64, at time.Time) store.EndedSession {
	entry := ended(m, n, session.Completed, 99_999, at)
	entry.Refused = &session.Payment{Ref: "refused-" + strconv.Itoa(n), AmountCents: cents, Currency: "EUR"}
	return entry
}

func refunded(m *v1alpha1.Merchant, n int, cents int64, at time.Time) store.EndedSession {
	entry := ended(m, n, session.Completed, 99_999, at)
	entry.Refund = &feed.Refund{Refund: session.Refund{Ref: "back-" + strconv.Itoa(n), PaymentRef: "card", AmountCents: cents, At: at}, Currency: "EUR"}
	return entry
}

// A day is the shop's. It has what was paid, what arrived and is to be sent back, and what went back; the net of them adds up.
func TestListPayments_Totals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin, euros)
	f.advance(time.Until(time.Date(2030, 11, 23, 12, 0, 0, 0, time.UTC)))
	at := func(day, hour, minute int) time.Time { return time.Date(2030, 11, day, hour, minute, 0, 0, time.UTC) }
	francs := ended(m, 4, session.Completed, 700, at(22, 23, 30))
	francs.Currency = "CHF"
	f.payments.Store = &fakePayments{all: map[store.Account][]store.EndedSession{
		live(m): {
			ended(m, 1, session.Completed, 1250, at(23, 11, 0)), refunded(m, 2, 500, at(23, 10, 59)), ended(m, 2, session.Expired, 99_999, at(23, 10, 0)),
			refused(m, 3, 300, at(23, 9, 0)), francs, ended(m, 5, session.Completed, 1, at(22, 23, 0)), // midnight in Berlin
			ended(m, 6, session.Completed, 500, at(22, 22, 59)), ended(m, 7, session.Failed, 99_999, at(22, 13, 0)), refunded(m, 8, 2000, at(20, 13, 0)),
			ended(m, 9, session.Completed, 77, at(9, 23, 0)), ended(m, 10, session.Completed, 99_999, at(9, 22, 59)), // 14 days
		},
		{MerchantID: published.ID(m.UID), TestMode: true}: {ended(m, 11, session.Completed, 77, at(23, 11, 0))},
	}}
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	for mode, want := range map[string]struct {
		today       string
		days, hours []string
	}{
		"": {
			"Today Sat 23 Nov Paid €12.51 2 payments Arrived, not taken €3.00 Given back €5.00 Net €10.51 Paid CHF 7.00 1 payment Given back CHF 0.00 Net CHF 7.00",
			[]string{"Sun 10 Nov €0.77 €0.00 €0.77", "Wed 20 Nov €0.00 €20.00 −€20.00", "Fri 22 Nov €5.00 €0.00 €5.00", "Sat 23 Nov €15.51 €5.00 €10.51"},
			[]string{"00:00 €0.01 €0.00 €0.01", "10:00 €3.00 €0.00 €3.00", "11:00 €0.00 €5.00 −€5.00", "12:00 €12.50 €0.00 €12.50"},
		},
		"?mode=test": {"Today Sat 23 Nov Paid €0.77 1 payment Given back €0.00 Net €0.77", []string{"Sat 23 Nov €0.77 €0.00 €0.77"}, []string{"12:00 €0.77 €0.00 €0.77"}},
	} {
		for _, when := range []string{"counted", "kept"} {
			page := browser.Get(t, path+mode)
			got := []any{shownToday(page.Text), shownRows(page.Text, "day"), shownRows(page.Text, "hour")}
			if diff := cmp.Diff([]any{want.today, want.days, want.hours}, got); diff != "" {
				t.Errorf("%q, %s (-want +got):\n%s", mode, when, diff)
			}
			if test := mode != ""; strings.Contains(page.Text, "order-11") != test || strings.Contains(page.Text, "order-5") == test {
				t.Errorf("%q shows payments of the other mode: %s", mode, page.Text)
			}
		}
	}
	if page := browser.Get(t, path); !strings.Contains(page.Text, `data-shop>23 Nov, 00:00</time>`) || !strings.Contains(page.Text, "Europe/Berlin") {
		t.Errorf("the times are not the shop's: %s", page.Text)
	}
}

// A row of the list is what it is: refunded, to be refunded, money that went back.
func TestListPayments_Rows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, now := f.merchant("acme", euros), f.clock()
	f.payments.Store = &fakePayments{all: map[store.Account][]store.EndedSession{live(m): {
		refunded(m, 1, 500, now), refused(m, 2, 300, now), ended(m, 3, session.Completed, 1250, now), ended(m, 4, session.Expired, 480, now),
	}}}
	f.grant(user(alice), []string{"get", "viewpayments"})
	page := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/acme/payments")
	table := page.Text[strings.Index(page.Text, `<table class="money payments">`):]
	var rows []string
	for _, row := range strings.Split(table, "<tr")[2:] {
		rows = append(rows, regexp.MustCompile(` \d+ \w+, \d\d:\d\d`).ReplaceAllString(shownText("<tr"+row, "<tr", "</tr>"), ""))
	}
	want := []string{
		`class="back"> order order-1 Given back −€5.00 €5.00 −€5.00`, `> order order-2 Not taken €3.00 €3.00`, `> order order-3 Paid €12.50 €12.50`, `class="unpaid"> order order-4 Not paid in time €4.80`,
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A page reads a bounded part of a busy shop's days, says how far it came, and the next page goes on from there. What was counted is not read again.
func TestListPayments_CountsOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, now := f.merchant("acme", euros), f.clock()
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	const read, of = 1000, 20 // entries of a read, reads of a page
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{}}
	for i := range 2*read*of - 500 {
		reader.all[live(m)] = append(reader.all[live(m)], ended(m, i, session.Completed, 1, now.Add(-time.Duration(i)*15*time.Second))) // for ten days
	}
	f.payments.Store = reader
	for i, want := range []struct {
		reads   int64
		partial bool
	}{{of, true}, {of, true}, {2, false}, {1, false}} {
		if i == 1 {
			f.advance(time.Minute)
		}
		before := reader.reads.Load()
		page := browser.Get(t, path).Text
		if got := reader.reads.Load() - before - 1; got > want.reads { // one is the list's
			t.Errorf("page %d reads %d times, want at most %d", i+1, got, want.reads)
		}
		if got := strings.Contains(page, "Counted since"); got != want.partial {
			t.Errorf("page %d says that more is to be counted: %v", i+1, got)
		}
	}
}

// Until all of today is counted, each of its sums says that it may be more, and the net, which may be less, is not said.
func TestListPayments_PartOfToday(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", euros)
	noon := time.Date(2030, 11, 23, 12, 0, 0, 0, time.UTC)
	f.advance(time.Until(noon))
	f.grant(user(alice), []string{"get", "viewpayments"})
	const counted = 20_000 // entries of a page
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{}}
	for i := range counted + 10 {
		at := noon.Add(-time.Duration(i) * time.Second)
		entry := ended(m, i, session.Completed, 1, at)
		switch i {
		case 1:
			entry = refunded(m, i, 500, at)
		case 2:
			entry = refused(m, i, 300, at)
		}
		reader.all[live(m)] = append(reader.all[live(m)], entry)
	}
	f.payments.Store = reader
	browser := f.signedIn(alice)
	for _, want := range []string{
		"Paid at least €199.98 19,998 payments Arrived, not taken at least €3.00 Given back at least €5.00 Net not known yet Only",
		"Paid €200.08 20,008 payments Arrived, not taken €3.00 Given back €5.00 Net €198.08",
	} {
		page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme/payments").Text
		if got := shownToday(page); !strings.Contains(got, want) {
			t.Errorf("today says\n%s, want\n%s", got, want)
		}
	}
}

// What a Redis whose clock is behind records late is counted, and a day begins at midnight. Counts are made anew after an hour.
func TestListPayments_Kept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, globex := f.merchant("acme", euros), f.merchant("globex", euros)
	f.grant(user(alice), []string{"get", "viewpayments"})
	midnight := f.clock().Truncate(24 * time.Hour).Add(24 * time.Hour)
	f.advance(midnight.Add(time.Minute).Sub(f.clock()))
	before := midnight.Add(-time.Minute)
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{
		live(acme):   {ended(acme, 10, session.Completed, 100, before)},
		live(globex): {ended(globex, 11, session.Completed, 200, before)},
	}}
	f.payments.Store = reader
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace
	want := func(when, page, today, yesterday string) {
		t.Helper()
		text := browser.Get(t, path+page).Text
		rows := strings.Join(shownRows(text, "day"), "\n")
		if !strings.Contains(shownToday(text), "Paid "+today) || !strings.Contains(rows, before.UTC().Format("Mon 2 Jan")+" "+yesterday) {
			t.Errorf("%s: %s, %q; want %s and %s", when, shownToday(text), rows, today, yesterday)
		}
	}
	n := 10
	sell := func(cents int64, at time.Time) {
		n--
		all := append([]store.EndedSession{ended(acme, n, session.Completed, cents, at)}, reader.all[live(acme)]...)
		slices.SortStableFunc(all, func(a, b store.EndedSession) int { return b.Entry.RecordedAt().Compare(a.Entry.RecordedAt()) })
		reader.all[live(acme)] = all
	}
	want("a minute after midnight", "/acme/payments", "€0.00", "€1.00")
	sell(10, before) // by a Redis whose clock is behind
	want("after a late sale", "/acme/payments", "€0.00", "€1.10")
	f.advance(5 * time.Minute)
	sell(50, f.clock())
	want("settled", "/acme/payments", "€0.50", "€1.10")
	sell(1000, before) // too late for a clock that is right
	sell(25, f.clock())
	want("kept", "/acme/payments", "€0.75", "€1.10")
	want("another merchant", "/globex/payments", "€0.00", "€2.00")
	f.advance(time.Hour)
	want("counted anew", "/acme/payments", "€0.75", "€11.10")
}

// Days that are not kept whole are not drawn, and the page says since when all is kept.
func TestListPayments_NotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, now := f.merchant("acme", euros), f.clock()
	f.grant(user(alice), []string{"get", "viewpayments"})
	kept := now.Truncate(24 * time.Hour).Add(-36 * time.Hour)
	f.payments.Store = &fakePayments{kept: kept, all: map[store.Account][]store.EndedSession{live(m): {ended(m, 1, session.Completed, 100, now)}}}
	page := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/acme/payments").Text
	if text := shownText(page, `<div class="charts">`, `<section id="list"`); !strings.Contains(text, "Last 2 days") || !strings.Contains(text, "Payments are kept since "+kept.Format("2 Jan")+", 12:00 .") {
		t.Errorf("the pictures say %s", text)
	}
}

// One field finds orders, references and amounts, and says how far back it has searched.
func TestListPayments_Search(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, now := f.merchant("acme", euros), f.clock()
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	reader := &fakePayments{Store: f.store, all: map[store.Account][]store.EndedSession{}}
	const most = 10_000 // entries that one page searches
	for i := range most + 10 {
		entry := ended(m, i, session.Completed, 100, now.Add(-time.Duration(i)*time.Second))
		entry.PaymentRef = "card-" + strconv.Itoa(i)
		reader.all[live(m)] = append(reader.all[live(m)], entry)
	}
	all := reader.all[live(m)]
	all[7].Charge.AmountCents, all[most+5].Charge.AmountCents = 1250, 1250
	reference, _ := all[9].Reference()
	all[3] = refunded(m, 3, 1250, all[3].Entry.RecordedAt())
	for i, currency := range map[int]string{20: "JPY", 21: "USD", 22: "CAD"} {
		all[i].Charge.AmountCents, all[i].Currency = 1250, currency
	}
	f.payments.Store = reader
	for text, want := range map[string][]string{
		"order-7": {"order-7"}, "card-7": {"order-7"}, "back-3": {"order-3"}, "12.50": {"order-3", "order-7"}, "12,50 €": {"order-3", "order-7"}, "EUR 12.5": {"order-3", "order-7"},
		"€12.50": {"order-3", "order-7"}, "−12.50": {"order-3", "order-7"}, "$12.50": {"order-21"}, "12.50 usd": {"order-21"}, "CA$12.50": {"order-22"}, "1250 JPY": {"order-20"}, "1250": {},
		reference.String(): {"order-9"}, strings.ToLower(reference.String()): {"order-9"}, "12": {}, "order-": {}, "0.99": {},
	} {
		page := browser.Get(t, path+"?q="+url.QueryEscape(text)).Text
		got := []string{}
		for _, found := range regexp.MustCompile(`>order (order-[0-9]+)<`).FindAllStringSubmatch(page, -1) {
			got = append(got, found[1])
		}
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(page, "were searched.") || strings.Contains(page, `class="charts"`) {
			t.Errorf("%q (-want +got):\n%s\n%s", text, diff, shownText(page, "<main", "</main>"))
		}
	}
	page := browser.Get(t, path+"?q=12.50").Text
	older := regexp.MustCompile(`href="([^"]*)" rel="next">Search older payments`).FindStringSubmatch(page)
	if older == nil {
		t.Fatalf("there is no older part: %s", page)
	}
	page = browser.Get(t, f.URL+strings.ReplaceAll(older[1], "&amp;", "&")).Text
	if !strings.Contains(page, "order "+all[most+5].Charge.OrderRef) || strings.Contains(page, "were searched.") {
		t.Errorf("the older part shows %s", shownText(page, "<main", "</main>"))
	}
	if page := browser.Get(t, path+"?q="+all[7].ID.String()); !strings.HasSuffix(page.URL.Path, "/payments/"+all[7].ID.String()) {
		t.Errorf("the id of a session leads to %s", page.URL)
	}
}

// What the index of orders finds is on the first page. The page of the part of the feed in which it ended does not show it again.
func TestListPayments_SearchOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, now := f.merchant("acme", euros), f.clock()
	f.grant(user(alice), []string{"get", "viewpayments"})
	reader := &fakePayments{Store: f.store, all: map[store.Account][]store.EndedSession{}}
	const most = 10_000 // entries that one page searches
	for i := range most + 10 {
		reader.all[live(m)] = append(reader.all[live(m)], ended(m, i, session.Completed, 100, now.Add(-time.Duration(i)*time.Second)))
	}
	old := &reader.all[live(m)][most+5]
	old.Charge.OrderRef = "deep"
	old.ID = f.charge(m, "key", old.Charge)
	f.payments.Store = reader
	browser := f.signedIn(alice)
	first := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme/payments?q=deep").Text
	older := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(first)
	if strings.Count(first, "order deep") != 1 || older == nil {
		t.Fatalf("the first page shows %s", shownText(first, "<main", "</main>"))
	}
	if second := browser.Get(t, f.URL+strings.ReplaceAll(older[1], "&amp;", "&")).Text; strings.Contains(second, "order deep") {
		t.Errorf("the second page shows it again: %s", shownText(second, "<main", "</main>"))
	}
}

// The pages have each payment once.
func TestListPayments_Pages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	reader, now := &fakePayments{all: map[store.Account][]store.EndedSession{}}, f.clock()
	const all = 2*50 + 7
	for i := range all {
		reader.all[live(m)] = append(reader.all[live(m)], ended(m, 1000+i, session.Completed, 1, now))
	}
	f.payments.Store = reader
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser := f.signedIn(alice)
	path := "/merchants/" + f.namespace + "/acme/payments"
	next, shown := path, []string{}
	older := regexp.MustCompile(`href="([^"]*)" rel="next"`)
	for pages := 1; next != ""; pages++ {
		page := browser.Get(t, f.URL+next).Text
		for _, found := range regexp.MustCompile(`order order-([0-9]+)`).FindAllStringSubmatch(page, -1) {
			shown = append(shown, found[1])
		}
		if first := pages == 1; first != (shownToday(page) != "") || first == strings.Contains(page, ">Newest<") {
			t.Errorf("page %d: %s", pages, page)
		}
		next = ""
		if link := older.FindStringSubmatch(page); link != nil {
			next = link[1]
		}
	}
	if !slices.IsSorted(shown) || len(slices.Compact(shown)) != all {
		t.Errorf("%d payments are shown: %v", len(shown), shown)
	}
}

func TestListPayments_Words(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	f.payments.Store = &fakePayments{}
	if page := browser.Get(t, path); !strings.Contains(page.Text, "No payments yet") || strings.Contains(page.Text, "Older") {
		t.Errorf("without payments: %s", page.Text)
	}
	for range store.MaxOrderSessions + 1 {
		f.charge(m, "key", session.Charge{AmountCents: 1, OrderRef: "many"})
	}
	f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: `<script>"1"</script>`})
	f.payments.Store = f.store
	for order, want := range map[string]string{
		`<script>"1"</script>`: "order &lt;script&gt;", ` <script>"1"</script>`: "€12.50", "many": "This order has more payments.", "none <b>": "Nothing was found for “none &lt;b&gt;”",
	} {
		page := browser.Get(t, path+"?order="+url.QueryEscape(order))
		if !strings.Contains(page.Text, want) || strings.Contains(page.Text, "<script>\"") || shownToday(page.Text) != "" {
			t.Errorf("order %q: no %q in %s", order, want, page.Text)
		}
	}
	if page := browser.Get(t, path+"?before=x"); page.Status != http.StatusNotFound {
		t.Errorf("of a place that is none: %d", page.Status)
	}
	f.payments.Store = &fakePayments{failAt: 1}
	if page := browser.Get(t, path); page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "Temporarily unavailable") {
		t.Errorf("without Redis: %d %s", page.Status, page.Text)
	}
}

// Who may not see payments learns nothing of them: not even that there is a page.
func TestPayments_WithoutTheRight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payments.Store = &fakePayments{}
	f.merchant("acme")
	f.grant(user(alice), []string{"get", "issuekeys", "rotatekeys", "editallowlist", "editwebhook"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	missing := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/umbrel/payments")
	for _, page := range []string{"/payments", "/payments.csv", "/payments.xlsx", "/payments/ps_abcdefgh2345T2xV9bLrYc8WdNeHq7", "/payments?order=1"} {
		if got := browser.Get(t, path+page); got.Status != http.StatusNotFound || got.Text != missing.Text {
			t.Errorf("%s: %d %s", page, got.Status, got.Text)
		}
	}
	if page := browser.Get(t, path); strings.Contains(page.Text, "/payments") {
		t.Errorf("the page of the merchant leads to payments: %s", page.Text)
	}
}
