package payments

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// slowFeeds answers at once about all merchants but those with an id.
type slowFeeds struct {
	Store

	slow string
}

// ReadEnded returns no payments.
func (f slowFeeds) ReadEnded(ctx context.Context, account store.Account, _ store.EndedQuery) (store.EndedPage, error) {
	if account.MerchantID == f.slow {
		<-ctx.Done()
	}
	return store.EndedPage{}, ctx.Err()
}

// A tenant whose downloads and totals read many payments is not in the way of another tenant's page.
func TestReadEnded_ManyOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", UID: "3f333df6-90a4-4fda-8dd3-9485d27cee36"}}
		victim := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "victim", UID: "6ecd8c99-4036-403d-bf84-cf8400f67836"}}
		h := New(Options{Store: slowFeeds{slow: published.ID(crowd.UID)}})
		for range 16 {
			go func() { _, _ = h.readEnded(t.Context(), crowd, false, store.EndedQuery{}) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.readEnded(ctx, victim, false, store.EndedQuery{}); err != nil {
			t.Error(err)
		}
	})
}

// A tenant with many Merchants in the list has one read of payments at a time too. What it does not get in time is left out.
func TestPaidToday_ManyOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := []*v1alpha1.Merchant{{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", UID: "3f333df6-90a4-4fda-8dd3-9485d27cee36"}}}
		feeds := &countedFeeds{}
		h := New(Options{Store: feeds, Pages: &web.Pages{Now: time.Now}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 16 {
			go func() { _, _ = h.PaidToday(ctx, crowd) }()
		}
		synctest.Wait()
		if n := feeds.reading.Load(); n != 1 {
			t.Errorf("%d reads at once, want 1", n)
		}
		if texts, err := h.PaidToday(ctx, crowd); texts[0] != "" || err != nil {
			t.Errorf("without a turn: %q, %v", texts, err)
		}
	})
}

// countedFeeds counts the reads that are in progress, and answers none.
type countedFeeds struct {
	Store

	reading atomic.Int64
}

// ReadEnded waits until ctx ends.
func (f *countedFeeds) ReadEnded(ctx context.Context, _ store.Account, _ store.EndedQuery) (store.EndedPage, error) {
	f.reading.Add(1)
	<-ctx.Done()
	return store.EndedPage{}, ctx.Err()
}

// oneFeed has one payment, and reads from the millisecond of a query on, as the store does.
type oneFeed struct {
	Store

	paid store.EndedSession
}

func (f oneFeed) ReadEnded(_ context.Context, _ store.Account, query store.EndedQuery) (store.EndedPage, error) {
	if int64(f.paid.Entry.Millis) < query.From.UnixMilli() || query.Before != (feed.EntryID{}) && f.paid.Entry.Millis >= query.Before.Millis {
		return store.EndedPage{Since: query.From}, nil
	}
	return store.EndedPage{Since: query.From, Sessions: []store.EndedSession{f.paid}}, nil
}

// A payment of the millisecond in which ends what is settled is counted once, also when the clock goes back between two pages.
func TestCount_Once(t *testing.T) {
	paidAt := time.UnixMilli(1_800_000_000_123)
	now := paidAt.Add(settledAfter + 400*time.Microsecond)
	one := store.EndedSession{Entry: feed.EntryID{Millis: uint64(paidAt.UnixMilli())}}
	one.Charge.AmountCents, one.Currency = 125, "EUR"
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", UID: "3f333df6-90a4-4fda-8dd3-9485d27cee36"}}
	h := New(Options{Store: oneFeed{paid: one}, Pages: &web.Pages{Now: func() time.Time { return now }}})
	for _, step := range []time.Duration{0, 0, time.Second, -2 * time.Second, time.Second} {
		now = now.Add(step)
		counted, err := h.count(t.Context(), merchant, false, countedReads)
		if err != nil {
			t.Fatal(err)
		}
		if got := counted.counts.days[0].get("EUR").paid; got != 125 {
			t.Errorf("after %s: paid %d, want 125", step, got)
		}
	}
}
