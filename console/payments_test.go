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
			!query.To.IsZero() && !recorded.Before(query.To), recorded.Before(query.From), query.Status != "" && ended.Status != query.Status:
			continue
		case len(page.Sessions) == query.Limit:
			page.Next = page.Sessions[len(page.Sessions)-1].Entry
			return page, nil
		}
		page.Sessions = append(page.Sessions, ended)
	}
	return page, nil
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

// shownDays are the totals of a page, as text.
func shownDays(page string) []string {
	var days []string
	for _, day := range regexp.MustCompile(`(?s)<section class="panel day".*?</section>`).FindAllString(page, -1) {
		days = append(days, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(day, " ")), " "))
	}
	return days
}

// A day is the shop's, and counts what was paid only.
func TestListPayments_Totals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin)
	f.advance(time.Until(time.Date(2030, 11, 23, 12, 0, 0, 0, time.UTC)))
	at := func(day, hour, minute int) time.Time { return time.Date(2030, 11, day, hour, minute, 0, 0, time.UTC) }
	francs := ended(m, 6, session.Completed, 700, at(22, 12, 0))
	francs.Currency = "CHF"
	f.payments.Store = &fakePayments{all: map[store.Account][]store.EndedSession{
		live(m): {
			ended(m, 1, session.Completed, 1250, at(23, 11, 0)), ended(m, 2, session.Expired, 99_999, at(23, 10, 0)),
			ended(m, 3, session.Completed, 1, at(22, 23, 0)), // midnight in Berlin
			ended(m, 4, session.Completed, 500, at(22, 22, 59)), ended(m, 5, session.Failed, 99_999, at(22, 13, 0)), francs,
			ended(m, 7, session.Completed, 99_999, at(21, 22, 59)),
		},
		{MerchantID: published.ID(m.UID), TestMode: true}: {ended(m, 8, session.Completed, 77, at(23, 11, 0))},
	}}
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	for mode, want := range map[string][]string{
		"":           {"Today Sat 23 Nov €12.51 2 payments · CSV", "Yesterday Fri 22 Nov CHF 7.00 and €5.00 2 payments · CSV"},
		"?mode=test": {"Today Sat 23 Nov €0.77 1 payment · CSV", "Yesterday Fri 22 Nov Nothing paid CSV"},
	} {
		page := browser.Get(t, path+mode)
		if diff := cmp.Diff(want, shownDays(strings.ReplaceAll(page.Text, "\u00a0", " "))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", mode, diff)
		}
		if test := mode != ""; strings.Contains(page.Text, "order-8") != test || strings.Contains(page.Text, "order-1") == test {
			t.Errorf("%q shows payments of the other mode: %s", mode, page.Text)
		}
	}
	if page := browser.Get(t, path); !strings.Contains(page.Text, `data-shop>23 Nov, 00:00</time>`) || !strings.Contains(page.Text, "Europe/Berlin") {
		t.Errorf("the times are not the shop's: %s", page.Text)
	}
}

// Above its bound a total says so.
func TestListPayments_MoreThan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	const most = 5000
	for n, want := range map[int]string{
		most: "€50.00 5,000 payments · CSV", most + 1: "more than €50.00 more than 5,000 payments · CSV Only the newest are counted here. The CSV has all.",
	} {
		reader, now := &fakePayments{all: map[store.Account][]store.EndedSession{}}, f.clock()
		for i := range n {
			reader.all[live(m)] = append(reader.all[live(m)], ended(m, i, session.Completed, 1, now))
		}
		f.payments.Store = reader
		if days := shownDays(browser.Get(t, path).Text); len(days) != 2 || !strings.HasSuffix(days[0], want) {
			t.Errorf("with %d payments: %q, want %q", n, days, want)
		}
	}
	f.advance(15 * time.Minute) // yesterday is read again
	noon := f.clock().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	f.payments.Store = &fakePayments{kept: noon}
	if days := shownDays(browser.Get(t, path).Text); strings.Contains(days[0], "kept") || !strings.Contains(days[1], "Payments are kept since "+noon.Format("2 Jan")+", 12:00 .") {
		t.Errorf("yesterday is not kept whole: %q", days)
	}
}

// Yesterday is added up once, by merchant and mode; today with each page. Just after midnight a day may still change.
func TestListPayments_ClosedDays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, globex := f.merchant("acme"), f.merchant("globex")
	f.grant(user(alice), []string{"get", "viewpayments"})
	midnight := f.clock().Truncate(24 * time.Hour).Add(24 * time.Hour)
	f.advance(midnight.Add(time.Minute).Sub(f.clock()))
	before := midnight.Add(-time.Hour)
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{
		live(acme):   {ended(acme, 1, session.Completed, 100, before)},
		live(globex): {ended(globex, 2, session.Completed, 200, before)},
		{MerchantID: published.ID(acme.UID), TestMode: true}: {ended(acme, 3, session.Completed, 300, before)},
	}}
	f.payments.Store = reader
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace
	want := func(when, page, today, yesterday string) {
		t.Helper()
		days := shownDays(browser.Get(t, path+page).Text)
		if len(days) != 2 || !strings.Contains(days[0], today) || !strings.HasPrefix(days[1], "Yesterday") || !strings.Contains(days[1], yesterday) {
			t.Errorf("%s: %q, want %s and %s", when, days, today, yesterday)
		}
	}
	sell := func(cents int64, at time.Time) {
		reader.all[live(acme)] = append([]store.EndedSession{ended(acme, 0, session.Completed, cents, at)}, reader.all[live(acme)]...)
	}
	want("a minute after midnight", "/acme/payments", "Nothing paid", "€1.00")
	sell(10, before) // by a Redis whose clock is behind
	want("after a late sale", "/acme/payments", "Nothing paid", "€1.10")

	f.advance(5 * time.Minute)
	sell(50, f.clock())
	want("closed", "/acme/payments", "€0.50", "€1.10")
	sell(1000, before)
	sell(25, f.clock())
	want("kept", "/acme/payments", "€0.75", "€1.10")
	want("another merchant", "/globex/payments", "Nothing paid", "€2.00")
	want("test mode", "/acme/payments?mode=test", "Nothing paid", "€3.00")
	f.advance(10 * time.Minute)
	want("kept too long", "/acme/payments", "€0.75", "€11.10")
	f.advance(24 * time.Hour)
	want("the next day", "/acme/payments", "Nothing paid", "€0.75")
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
		if first := pages == 1; first != (len(shownDays(page)) == 2) || first == strings.Contains(page, ">Newest<") {
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
		`<script>"1"</script>`: "order &lt;script&gt;", ` <script>"1"</script>`: "€12.50", "many": "This order has more payments.", "none <b>": "No payment of order “none &lt;b&gt;” was found",
	} {
		page := browser.Get(t, path+"?order="+url.QueryEscape(order))
		if !strings.Contains(page.Text, want) || strings.Contains(page.Text, "<script>\"") || len(shownDays(page.Text)) > 0 {
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
	for _, page := range []string{"/payments", "/payments.csv", "/payments/ps_abcdefgh2345T2xV9bLrYc8WdNeHq7", "/payments?order=1"} {
		if got := browser.Get(t, path+page); got.Status != http.StatusNotFound || got.Text != missing.Text {
			t.Errorf("%s: %d %s", page, got.Status, got.Text)
		}
	}
	if page := browser.Get(t, path); strings.Contains(page.Text, "/payments") {
		t.Errorf("the page of the merchant leads to payments: %s", page.Text)
	}
}
