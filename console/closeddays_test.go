package console

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Yesterday is added up once, by merchant and mode; today with each page. Just after midnight a day may still change.
func TestClosedDays(t *testing.T) {
	f := newFixture(t)
	acme, globex := f.merchant("acme"), f.merchant("globex")
	f.grant(user(alice), []string{"get", "viewpayments"})
	midnight := f.now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	f.advance(midnight.Add(time.Minute).Sub(f.now()))
	before := midnight.Add(-time.Hour)
	reader := &fakePayments{all: map[store.Account][]store.EndedSession{
		live(acme):             {ended(acme, 1, session.Completed, 100, before)},
		live(globex):           {ended(globex, 2, session.Completed, 200, before)},
		newAccount(acme, true): {ended(acme, 3, session.Completed, 300, before)},
	}}
	f.payments = reader
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

	f.advance(closedAfter)
	sell(50, f.now())
	want("closed", "/acme/payments", "€0.50", "€1.10")
	sell(1000, before)
	sell(25, f.now())
	want("kept", "/acme/payments", "€0.75", "€1.10")
	want("another merchant", "/globex/payments", "Nothing paid", "€2.00")
	want("test mode", "/acme/payments?mode=test", "Nothing paid", "€3.00")
	f.advance(closedFor)
	want("kept too long", "/acme/payments", "€0.75", "€11.10")
	f.advance(24 * time.Hour)
	want("the next day", "/acme/payments", "Nothing paid", "€0.75")
}

// What is kept is bounded.
func TestClosedDays_Bounded(t *testing.T) {
	days, now := newClosedDays(), time.Now()
	closed := dayTotals{Day: payments.DayAt(now.Add(-48*time.Hour), time.UTC)}
	for i := range maxClosedDays + 1 {
		days.put(store.Account{MerchantID: strings.Repeat("m", i)}, &closed, now)
	}
	if len(days.byDay) > maxClosedDays || !days.get(store.Account{MerchantID: strings.Repeat("m", maxClosedDays)}, &closed, now) {
		t.Errorf("%d days are kept", len(days.byDay))
	}
}
