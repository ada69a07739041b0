package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// asking is a request for so many cents; 0: for the rest.
func asking(t testing.TB, key string, cents int64) store.AskedRefund {
	t.Helper()
	asked := store.AskedRefund{Idempotency: idempotencyKey(t, key), Reason: "returned 100% \"as is\""}
	if cents != 0 {
		asked.AmountCents = &cents
	}
	return asked
}

// paidSession is a session of 1250 that card-1 has completed.
func paidSession(t testing.TB, s *services, asks admission.Request) session.ID {
	t.Helper()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	settle := s.Settle
	if asks.TestMode {
		settle = s.SettleTest
	}
	if _, err := settle(t.Context(), id, by(rail, paid("card-1"))); !s.Replicated() {
		must(t, err)
	}
	return id
}

// nextMillisecond returns when the clock of Redis shows a later time than any recorded before, which is that of this machine.
func nextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
		runtime.Gosched()
	}
}

// requestStatuses returns the amounts of a session's requests, by what became of them.
func requestStatuses(requests []session.RefundRequest) map[session.RefundStatus][]int64 {
	by := map[session.RefundStatus][]int64{}
	for _, request := range requests {
		by[request.Status] = append(by[request.Status], request.AmountCents)
	}
	return by
}

// A merchant and its rail in turn, at two replicas. The payment is of 1250, and a second one of 1250 was refused.
func TestRequestRefund(t *testing.T) {
	type replica = *services
	type step func(t *testing.T, s replica, asks admission.Request, id session.ID) error
	ask := func(key string, cents int64) step {
		return func(t *testing.T, s replica, asks admission.Request, id session.ID) error {
			t.Helper()
			nextMillisecond() // newer than the last one
			return third(s.RequestRefund(t.Context(), asks, id, asking(t, key, cents)))
		}
	}
	confirm := func(key string, cents int64) step {
		return func(t *testing.T, s replica, _ admission.Request, id session.ID) error {
			t.Helper()
			return second(s.Refund(t.Context(), id, refunding("card-1", session.NewRefundID(id, idempotencyKey(t, key)), cents)))
		}
	}
	pays := func(payment, ref string, cents int64) step {
		return func(t *testing.T, s replica, _ admission.Request, id session.ID) error {
			t.Helper()
			return second(s.Refund(t.Context(), id, refunding(payment, ref, cents)))
		}
	}
	reject := func(key, payment string, by session.Rail) step {
		return func(t *testing.T, s replica, _ admission.Request, id session.ID) error {
			t.Helper()
			refundID := session.NewRefundID(id, idempotencyKey(t, key))
			return second(s.RejectRefund(t.Context(), id, store.Rejection{Rail: by, PaymentRef: payment, RefundID: refundID, Reason: "closed"}))
		}
	}
	type steps []struct {
		do   step
		want error
	}
	const (
		requested, confirmed, rejected = session.RefundRequested, session.RefundConfirmed, session.RefundRejected
		asked, refunded, refused       = v1alpha1.EventRefundRequested, v1alpha1.EventPaymentRefunded, v1alpha1.EventRefundRejected
	)
	type wanted map[session.RefundStatus][]int64
	for name, test := range map[string]struct {
		steps    steps
		requests wanted
		refunded int64
		events   []v1alpha1.WebhookEvent
	}{
		"the whole payment":     {steps{{ask("a", 0), nil}, {confirm("a", 1250), nil}}, wanted{confirmed: {1250}}, 1250, []v1alpha1.WebhookEvent{asked, refunded}},
		"more than the payment": {steps{{ask("a", 1251), store.ErrRefundExceedsPayment}}, wanted{}, 0, nil},
		"the rest":              {steps{{ask("a", 50), nil}, {ask("b", 0), nil}, {ask("c", 0), store.ErrRefundExceedsPayment}}, wanted{requested: {50, 1200}}, 0, []v1alpha1.WebhookEvent{asked, asked}},
		"more than the rest": {
			steps{{pays("card-1", "own", 1000), nil}, {ask("a", 251), store.ErrRefundExceedsPayment}, {ask("a", 250), nil}}, wanted{requested: {250}}, 1000,
			[]v1alpha1.WebhookEvent{refunded, asked},
		},
		"the same again":        {steps{{ask("a", 50), nil}, {ask("a", 50), errRepeated}, {confirm("a", 50), nil}, {ask("a", 50), errRepeated}, {confirm("a", 50), errRepeated}}, wanted{confirmed: {50}}, 50, []v1alpha1.WebhookEvent{asked, refunded}},
		"the rest again":        {steps{{ask("a", 0), nil}, {ask("a", 0), errRepeated}, {ask("a", 1250), errRepeated}}, wanted{requested: {1250}}, 0, []v1alpha1.WebhookEvent{asked}},
		"a key, another amount": {steps{{ask("a", 50), nil}, {ask("a", 51), store.ErrRequestConflict}, {ask("a", 0), store.ErrRequestConflict}}, wanted{requested: {50}}, 0, []v1alpha1.WebhookEvent{asked}},
		"rejected":              {steps{{ask("a", 50), nil}, {reject("a", "card-1", rail), nil}, {reject("a", "card-1", rail), errRepeated}, {ask("b", 1250), nil}}, wanted{rejected: {50}, requested: {1250}}, 0, []v1alpha1.WebhookEvent{asked, refused, asked}},
		"rejected, then confirmed": {
			steps{{ask("a", 50), nil}, {reject("a", "card-1", rail), nil}, {confirm("a", 50), nil}, {reject("a", "card-1", rail), store.ErrRequestConfirmed}}, wanted{confirmed: {50}}, 50,
			[]v1alpha1.WebhookEvent{asked, refused, refunded},
		},
		"another one rejects": {steps{{ask("a", 50), nil}, {reject("a", "card-1", bank), store.ErrNoRequest}, {reject("a", "card-2", rail), store.ErrNoRequest}, {reject("b", "card-1", rail), store.ErrNoRequest}}, wanted{requested: {50}}, 0, []v1alpha1.WebhookEvent{asked}},
		// What has moved counts, and the merchant's repetition asks for nothing more.
		"confirmed with another sum": {
			steps{{ask("a", 50), nil}, {confirm("a", 49), nil}, {confirm("a", 49), errRepeated}, {confirm("a", 50), store.ErrRefundConflict}, {ask("a", 50), errRepeated}, {ask("a", 49), store.ErrRequestConflict}, {ask("b", 0), nil}},
			wanted{confirmed: {49}, requested: {1201}}, 49, []v1alpha1.WebhookEvent{asked, refunded, asked},
		},
		"the rest is confirmed with another sum": {
			steps{{ask("a", 0), nil}, {confirm("a", 1000), nil}, {ask("a", 0), errRepeated}, {confirm("a", 1000), errRepeated}}, wanted{confirmed: {1000}}, 1000,
			[]v1alpha1.WebhookEvent{asked, refunded},
		},
		"confirmed with more than was paid": {steps{{ask("a", 50), nil}, {confirm("a", 1251), store.ErrRefundExceedsPayment}}, wanted{requested: {50}}, 0, []v1alpha1.WebhookEvent{asked}},
		"confirmed with a sum that displaces": {
			steps{{ask("a", 500), nil}, {ask("b", 750), nil}, {confirm("a", 1000), nil}}, wanted{confirmed: {1000}, rejected: {750}}, 1000,
			[]v1alpha1.WebhookEvent{asked, asked, refunded, refused},
		},
		// Redis has lost the request in a failover, and the merchant repeats it.
		"confirmed before it is asked for": {
			steps{{confirm("a", 50), nil}, {reject("a", "card-1", rail), store.ErrRequestConfirmed}, {ask("a", 50), nil}, {ask("a", 50), errRepeated}, {reject("a", "card-1", rail), store.ErrRequestConfirmed}, {ask("b", 0), nil}},
			wanted{confirmed: {50}, requested: {1200}}, 50, []v1alpha1.WebhookEvent{refunded, asked},
		},
		"confirmed before the rest is asked for": {steps{{confirm("a", 1250), nil}, {ask("a", 0), nil}}, wanted{confirmed: {1250}}, 1250, []v1alpha1.WebhookEvent{refunded}},
		"confirmed before another sum is asked":  {steps{{confirm("a", 50), nil}, {ask("a", 51), store.ErrRequestConflict}}, wanted{}, 50, []v1alpha1.WebhookEvent{refunded}},
		// Money that moved is taken, and what no longer fits goes, the newest first.
		"the rail pays without being asked": {
			steps{{ask("a", 500), nil}, {ask("b", 400), nil}, {ask("c", 350), nil}, {pays("card-1", "own", 700), nil}, {pays("card-1", "own", 700), errRepeated}}, wanted{requested: {500}, rejected: {400, 350}}, 700,
			[]v1alpha1.WebhookEvent{asked, asked, asked, refunded, refused, refused},
		},
		"what was displaced is confirmed": {
			steps{{ask("a", 500), nil}, {ask("b", 750), nil}, {pays("card-1", "own", 500), nil}, {confirm("b", 750), nil}, {confirm("a", 500), store.ErrRefundExceedsPayment}}, wanted{confirmed: {750}, rejected: {500}}, 1250,
			[]v1alpha1.WebhookEvent{asked, asked, refunded, refused, refunded, refused},
		},
		"a refused payment leaves requests": {steps{{ask("a", 0), nil}, {pays("card-2", "own", 1250), nil}}, wanted{requested: {1250}}, 0, []v1alpha1.WebhookEvent{asked, refunded}},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
			asks := merchant()
			id := paidSession(t, replicas[0], asks)
			must(t, second(replicas[0].Settle(t.Context(), id, by(rail, paid("card-2")))))
			before := len(sessionEvents(t, client(t, shared), id))
			for i, step := range test.steps {
				events := len(sessionEvents(t, client(t, shared), id))
				err := step.do(t, replicas[i%2], asks, id)
				if errors.Is(step.want, errRepeated) {
					if now := len(sessionEvents(t, client(t, shared), id)); err != nil || now != events {
						t.Fatalf("step %d: %v, and %d events more", i, err, now-events)
					}
				} else if !errors.Is(err, step.want) {
					t.Fatalf("step %d: %v, want %v", i, err, step.want)
				}
			}
			story, err := replicas[1].ReadStory(t.Context(), id)
			must(t, err)
			if diff := gocmp.Diff(test.requests, wanted(requestStatuses(story.Requests)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if got := session.SumRefunds(story.Refunds); got != test.refunded || story.Session.Status != session.Completed {
				t.Errorf("%d went back of a session that is %s, want %d", got, story.Session.Status, test.refunded)
			}
			if diff := gocmp.Diff(test.events, eventKinds(sessionEvents(t, client(t, shared), id)[before:]), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			owed, err := replicas[0].Owed(t.Context(), rail, store.OwedPlace{}, 10_000)
			must(t, err)
			open := int64(0)
			for _, refund := range owed.Refunds {
				if refund.Session.ID == id && refund.Decision == "" {
					open += refund.Refund.AmountCents
				}
			}
			want := int64(0)
			for _, cents := range test.requests[requested] {
				want += cents
			}
			if open != want {
				t.Errorf("the rail reads that it owes %d, want %d", open, want)
			}
		})
	}
}

var errRepeated = errors.New("the first answer again")

// Who may not ask changes nothing: of a session that is not paid, of another account, without a permission or with a dead key.
func TestRequestRefund_Refused(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	completed := paidSession(t, s, asks)
	pending := mustCreate(t, s, asks, newSession()).Session.ID
	late := mustCreate(t, s, asks, newSession()).Session.ID
	cancelled(t, s, asks, late)
	must(t, second(s.Settle(t.Context(), late, paid("card-1"))))
	for name, test := range map[string]struct {
		asks admission.Request
		id   session.ID
		want error
	}{
		"pending":          {asks, pending, store.ErrNotCompleted},
		"paid too late":    {asks, late, store.ErrNotCompleted},
		"none":             {asks, session.NewID(asks.MerchantID, false), store.ErrNotFound},
		"another merchant": {merchant(), completed, store.ErrNotFound},
		"a test key":       {with(asks, inTestMode), completed, store.ErrNotFound},
		"no permission":    {with(asks, func(r *admission.Request) { r.Forbidden = true }), completed, admission.ErrForbidden},
		"a suspended one":  {with(asks, func(r *admission.Request) { r.Inactive = true }), completed, admission.ErrMerchantNotActive},
		"a dead key":       {with(asks, func(r *admission.Request) { r.Accepted = false }), completed, admission.ErrKeyRejected},
	} {
		if _, got, err := s.RequestRefund(t.Context(), test.asks, test.id, asking(t, "a", 50)); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, test.want)
		}
	}
	story, err := s.ReadStory(t.Context(), completed)
	must(t, err)
	if len(story.Requests) != 0 {
		t.Errorf("requests: %+v", story.Requests)
	}
	if requested, err := s.RequestRefundFor(t.Context(), completed, asking(t, "a", 0)); err != nil || requested.AmountCents != 1250 {
		t.Errorf("people with a right of their own: %+v, %v", requested, err)
	}
}

// A request is one of the merchant's requests, not two.
func TestRequestRefund_CountsOnce(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	admitted, _, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	before := admitted.Quota.Remaining
	admitted, _, err = s.RequestRefund(t.Context(), asks, id, asking(t, "b", 50))
	must(t, err)
	if admitted.Quota.Remaining < before-1 {
		t.Errorf("%d requests are left, and were %d", admitted.Quota.Remaining, before)
	}
	once := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
	once.MerchantID, once.KeyID, once.Digest = asks.MerchantID, asks.KeyID, asks.Digest
	must(t, client(t, shared).Del(t.Context(), merchantTag(asks.MerchantID)+"rate:"+asks.Account()).Err())
	if _, _, err := s.RequestRefund(t.Context(), once, id, asking(t, "c", 50)); err != nil {
		t.Errorf("with a limit of one: %v", err)
	}
	if _, _, err := s.RequestRefund(t.Context(), once, id, asking(t, "d", 50)); !errors.Is(err, admission.ErrRateLimited) {
		t.Errorf("with a limit of one, the second: %v", err)
	}
}

// Nobody confirms what is asked for in test mode, so it is confirmed at once, and nothing is owed.
func TestRequestRefund_TestMode(t *testing.T) {
	s, asks := open(t, shared.URL()), with(merchant(), inTestMode)
	id := paidSession(t, s, asks)
	before := len(sessionEvents(t, client(t, shared), id))
	for _, repeated := range []bool{false, true} {
		_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
		if err != nil || got.Status != session.RefundConfirmed || got.Repeated != repeated {
			t.Errorf("%+v, %v; want it confirmed, repeated %t", got, err, repeated)
		}
	}
	_, story, err := s.Story(t.Context(), asks, id)
	must(t, err)
	if len(story.Refunds) != 1 || story.Refunds[0].Ref != story.Requests[0].ID || story.Refunds[0].AmountCents != 50 {
		t.Errorf("refunds: %+v, requests: %+v", story.Refunds, story.Requests)
	}
	want := []v1alpha1.WebhookEvent{v1alpha1.EventRefundRequested, v1alpha1.EventPaymentRefunded}
	if got := eventKinds(sessionEvents(t, client(t, shared), id)[before:]); !slices.Equal(got, want) {
		t.Errorf("events: %v, want %v", got, want)
	}
	if owed, err := s.Owed(t.Context(), session.TestRail, store.OwedPlace{}, 10); err != nil || len(owed.Refunds) != 0 {
		t.Errorf("owed: %+v, %v", owed, err)
	}
}

// The events say what was asked, of which payment, and why.
func TestRequestRefund_Events(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	_, requested, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	must(t, second(s.RejectRefund(t.Context(), id, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: requested.ID, Reason: "account closed"})))
	refund := feed.Refund{Refund: session.Refund{Rail: rail, Ref: requested.ID, PaymentRef: "card-1", AmountCents: 50}, Currency: "EUR", PaymentCents: 1250, Reason: "returned 100% \"as is\""}
	rejected := refund
	rejected.Reason = "account closed"
	if diff := gocmp.Diff([]feed.Refund{refund, rejected}, refundEvents(sessionEvents(t, client(t, shared), id))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	_, again, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	want := session.RefundRequest{ID: requested.ID, AmountCents: 50, Reason: refund.Reason, Status: session.RefundRejected, RejectReason: "account closed"}
	if diff := gocmp.Diff(want, again.RefundRequest, cmpopts.IgnoreFields(session.RefundRequest{}, "RequestedAt", "DecidedAt")); diff != "" || again.DecidedAt.IsZero() {
		t.Errorf("the merchant reads (-want +got):\n%s", diff)
	}
}

// A session keeps so many requests. Those that were confirmed take no room from what a rail pays back without being asked.
func TestRequestRefund_Bounded(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	ask := func(id session.ID, key string) (string, error) {
		_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, key, 1))
		return got.ID, err
	}
	full := func(when string, id session.ID) {
		t.Helper()
		if _, err := ask(id, "one-more"); !errors.Is(err, store.ErrNoMoreRequests) {
			t.Errorf("one more, after %s: %v", when, err)
		}
	}

	open := paidSession(t, s, asks)
	var first string
	for i := range 10 {
		requested, err := ask(open, fmt.Sprint(i))
		must(t, err)
		first = cmp.Or(first, requested)
	}
	full("10 that are open", open)
	must(t, second(s.RejectRefund(t.Context(), open, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: first})))
	must(t, second(ask(open, "one-more")))

	confirmed := paidSession(t, s, asks)
	for i := range 20 {
		requested, err := ask(confirmed, fmt.Sprint(i))
		must(t, err)
		if i%2 == 0 {
			must(t, second(s.Refund(t.Context(), confirmed, refunding("card-1", requested, 1))))
		} else {
			must(t, second(s.RejectRefund(t.Context(), confirmed, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: requested})))
		}
	}
	full("20 that were decided", confirmed)
	for i := range 100 {
		must(t, second(s.Refund(t.Context(), confirmed, refunding("card-1", fmt.Sprint(i), 1))))
	}
	if _, err := s.Refund(t.Context(), confirmed, refunding("card-1", "one more", 1)); !errors.Is(err, store.ErrTooManyRefunds) {
		t.Errorf("101 refunds without a request: %v", err)
	}

	// A merchant and its rail together get no more room by asking for what was confirmed.
	together := paidSession(t, s, asks)
	for i := range 20 {
		key := fmt.Sprint(i)
		must(t, second(s.Refund(t.Context(), together, refunding("card-1", session.NewRefundID(together, idempotencyKey(t, key)), 1))))
		must(t, second(ask(together, key)))
	}
	must(t, second(s.Refund(t.Context(), together, refunding("card-1", session.NewRefundID(together, idempotencyKey(t, "one-more")), 1))))
	full("20 that were confirmed before", together)
}

// No other rail may use the name of a request: the merchant would take the event of that refund for a confirmation.
func TestRequestRefund_AnotherRailsReference(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	must(t, second(s.Settle(t.Context(), id, by(bank, paid("card-1")))))
	_, requested, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	before := len(sessionEvents(t, client(t, shared), id))
	for payment, want := range map[string]error{"card-1": store.ErrRefundConflict, "card-9": store.ErrNoPayment} {
		for _, cents := range []int64{50, 1250} {
			refund := refunding(payment, requested.ID, cents)
			refund.Rail = bank
			if _, err := s.Refund(t.Context(), id, refund); !errors.Is(err, want) {
				t.Errorf("the other rail confirms %d of %s: %v, want %v", cents, payment, err, want)
			}
		}
	}
	if n := len(sessionEvents(t, client(t, shared), id)); n != before {
		t.Errorf("%d events more", n-before)
	}
	story, err := s.ReadStory(t.Context(), id)
	must(t, err)
	if diff := gocmp.Diff(map[session.RefundStatus][]int64{session.RefundRequested: {50}}, requestStatuses(story.Requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A full or failed-over Redis may have lost an entry of a list: the merchant's repetition lists the request again, with its time.
func TestRequestRefund_ListedAgain(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	id := paidSession(t, s, asks)
	_, requested, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	account, tag := id.Account(), merchantTag(asks.MerchantID)
	must(t, c.Del(t.Context(), tag+"requested", tag+"refunds:"+string(rail), tag+"requested:"+account).Err())
	nextMillisecond()
	must(t, second(s.RequestRefundFor(t.Context(), id, asking(t, "a", 50))))
	page, err := s.Owed(t.Context(), rail, store.OwedPlace{}, 10)
	must(t, err)
	if len(page.Refunds) != 1 || page.Refunds[0].Refund.Ref != requested.ID || !page.Refunds[0].Since.Equal(requested.RequestedAt) {
		t.Errorf("the rail reads %+v, want what was asked for at %s", page.Refunds, requested.RequestedAt)
	}
	counts, err := s.CountOwed(t.Context(), []time.Duration{0})
	must(t, err)
	overdue, err := s.OverdueRequests(t.Context(), store.Account{MerchantID: asks.MerchantID}, 0)
	must(t, err)
	if counts.Requests[0] != 1 || overdue.Count != 1 {
		t.Errorf("the metric counts %d, the merchant %d", counts.Requests[0], overdue.Count)
	}
}

// The merchant, the rail and its own refunds at once, on two replicas: what went back and what is asked for is never above the payment.
func TestRequestRefund_Races(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	asks := merchant()
	id := paidSession(t, replicas[0], asks)
	var at sync.WaitGroup
	for i := range 30 {
		at.Go(func() {
			s := replicas[i%2]
			_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, fmt.Sprint(i/2), 100))
			if err != nil && !errors.Is(err, store.ErrRefundExceedsPayment) && !errors.Is(err, store.ErrNoMoreRequests) {
				t.Error(err)
			}
			if i%3 == 0 {
				_, err = s.Refund(t.Context(), id, refunding("card-1", fmt.Sprint(i), 100))
			} else if err == nil {
				_, err = s.Refund(t.Context(), id, refunding("card-1", got.ID, 100))
			} else {
				return
			}
			if err != nil && !errors.Is(err, store.ErrRefundExceedsPayment) {
				t.Error(err)
			}
		})
	}
	at.Wait()
	story, err := replicas[0].ReadStory(t.Context(), id)
	must(t, err)
	open := int64(0)
	for _, request := range story.Requests {
		if request.Status == session.RefundRequested {
			open += request.AmountCents
		}
	}
	if back := session.SumRefunds(story.Refunds); back != 1200 || back+open > 1250 {
		t.Errorf("%d went back, and %d are asked for", back, open)
	}
}

// A rail that has forgotten everything reads what it owes, its own alone, the oldest first, in pages.
func TestOwed(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	var want []string
	for i := range 7 { // in several buckets
		asks := merchant()
		id := paidSession(t, s, asks)
		if i%2 == 0 {
			_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 100))
			must(t, err)
			want = append(want, got.ID)
		} else {
			must(t, second(s.Settle(t.Context(), id, by(rail, paid("card-2")))))
			want = append(want, session.NewOwedRef(id, by(rail, paid("card-2")), 0))
		}
		must(t, second(s.Settle(t.Context(), id, by(bank, paid("card-2")))))
		nextMillisecond() // its place in the order
	}
	read := func(limit int) (all []store.Owed) {
		t.Helper()
		for place := (store.OwedPlace{}); ; {
			page, err := s.Owed(t.Context(), rail, place, limit)
			must(t, err)
			if len(page.Refunds) > limit || page.Incomplete {
				t.Fatalf("a page of %d: %+v", limit, page)
			}
			all = append(all, page.Refunds...)
			if place = page.Next; place == (store.OwedPlace{}) {
				return all
			}
		}
	}
	refs := func(all []store.Owed) (refs []string) {
		for _, owed := range all {
			refs = append(refs, owed.Refund.Ref)
		}
		return refs
	}
	for _, limit := range []int{1, 2, 3, 100} {
		if diff := gocmp.Diff(want, refs(read(limit))); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	for i, owed := range read(100) {
		if owed.Decision == session.Late {
			must(t, second(s.Refund(t.Context(), owed.Session.ID, with(owed.Refund, func(r *session.Refund) { r.AmountCents -= 50 }))))
			again := slices.IndexFunc(read(100), func(o store.Owed) bool { return o.Session.ID == owed.Session.ID })
			if rest := read(100)[again].Refund; rest.AmountCents != 50 || rest.Ref == owed.Refund.Ref {
				t.Errorf("%d: the rest is %+v", i, rest)
			} else {
				must(t, second(s.Refund(t.Context(), owed.Session.ID, rest)))
			}
			continue
		}
		must(t, second(s.Refund(t.Context(), owed.Session.ID, owed.Refund)))
	}
	if left := read(100); len(left) != 0 {
		t.Errorf("left: %v", refs(left))
	}
	if others, err := s.Owed(t.Context(), bank, store.OwedPlace{}, 100); err != nil || len(others.Refunds) != 7 {
		t.Errorf("another rail owes %d: %v", len(others.Refunds), err)
	}
}

// All pages of a rail but the last are full: many refunds of one merchant, or of several, do not shorten them.
func TestOwed_FullPages(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	for name, test := range map[string]struct {
		merchants, each int
		inTurn          bool // the merchants' payments were refused in turn, not one merchant's after the other's
	}{
		"one merchant":                {merchants: 1, each: 90},
		"several, one by one":         {merchants: 5, each: 40},
		"several, in turn":            {merchants: 5, each: 40, inTurn: true},
		"one of each bucket":          {merchants: session.Buckets, each: 12},
		"one of each bucket, in turn": {merchants: session.Buckets, each: 12, inTurn: true},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, c.FlushAll(t.Context()).Err())
			var ids []session.ID
			for bucket := range test.merchants {
				ids = append(ids, paidSession(t, s, merchantIn(session.Bucket(bucket))))
			}
			total := test.merchants * test.each
			for n := range total {
				id := ids[n/test.each]
				if test.inTurn {
					id = ids[n%test.merchants]
				}
				must(t, second(s.Settle(t.Context(), id, by(rail, paid(fmt.Sprint("late-", n))))))
			}
			for _, limit := range []int{10, 50, 100} {
				seen := map[string]bool{}
				var last time.Time
				for place, more := (store.OwedPlace{}), true; more; more = place != (store.OwedPlace{}) {
					page, err := s.Owed(t.Context(), rail, place, limit)
					must(t, err)
					place = page.Next
					if got, left := len(page.Refunds), total-len(seen); got != min(limit, left) {
						t.Fatalf("a page of %d has %d of the %d that are left", limit, got, left)
					}
					for _, owed := range page.Refunds {
						if seen[owed.Refund.Ref] || owed.Since.Before(last) {
							t.Errorf("%s comes twice, or before an older one", owed.Refund.PaymentRef)
						}
						seen[owed.Refund.Ref], last = true, owed.Since
					}
				}
				if len(seen) != total {
					t.Errorf("pages of %d list %d, want %d", limit, len(seen), total)
				}
			}
		})
	}
}

// A merchant that was deleted hears nothing of what its rail does with its requests.
func TestRequestRefund_MerchantDeleted(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	var refs []string
	for _, key := range []string{"a", "b", "c"} {
		_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, key, 400))
		must(t, err)
		refs = append(refs, got.ID)
	}
	before := len(sessionEvents(t, client(t, shared), id))
	must(t, second(s.RefundDeleted(t.Context(), id, refunding("card-1", refs[0], 400))))
	must(t, second(s.RejectRefundDeleted(t.Context(), id, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: refs[1]})))
	must(t, second(s.RefundDeleted(t.Context(), id, refunding("card-1", "own", 800))))
	if after := len(sessionEvents(t, client(t, shared), id)); after != before {
		t.Errorf("%d events more", after-before)
	}
	story, err := s.ReadStory(t.Context(), id)
	must(t, err)
	want := map[session.RefundStatus][]int64{session.RefundConfirmed: {400}, session.RefundRejected: {400, 400}}
	if diff := gocmp.Diff(want, requestStatuses(story.Requests)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A request that cannot be read is not taken for none.
func TestRequestRefund_Corrupt(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	_, requested, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	c, key := client(t, shared), merchantTag(asks.MerchantID)+"session:"+id.String()
	for _, garbage := range []string{"", "REQUESTED", "REQUESTED x 1 0 part p c\t\t", "NEW 1 1 0 part r card-1\t\t", "REQUESTED 50 1 0 part other card-1\t\t"} {
		must(t, c.HSet(t.Context(), key, "a:"+requested.ID, garbage).Err())
		if _, err := s.ReadStory(t.Context(), id); !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("a story with %q: %v", garbage, err)
		}
	}
	must(t, c.HSet(t.Context(), key, "a:"+requested.ID, "REQUESTED").Err())
	for name, err := range map[string]error{
		"ask":     second(s.RequestRefundFor(t.Context(), id, asking(t, "b", 50))),
		"confirm": second(s.Refund(t.Context(), id, refunding("card-1", requested.ID, 50))),
		"reject":  second(s.RejectRefund(t.Context(), id, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: requested.ID})),
	} {
		if !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program of before the requests has recorded a refund under the name of an open one. The same confirmation confirms that too.
func TestRequestRefund_ConfirmedByAnOlderProgram(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := paidSession(t, s, asks)
	_, asked, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
	must(t, err)
	key := merchantTag(asks.MerchantID) + "session:" + id.String()
	must(t, client(t, shared).HSet(t.Context(), key, "b:"+rail.Scope(asked.ID), "50 1795253496000 "+rail.Scope("card-1")).Err())
	if _, err := s.RejectRefund(t.Context(), id, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: asked.ID}); !errors.Is(err, store.ErrRequestConfirmed) {
		t.Errorf("a rejection: %v", err)
	}
	if got, err := s.Refund(t.Context(), id, refunding("card-1", asked.ID, 50)); err != nil || !got.Repeated {
		t.Errorf("the same confirmation: %+v, %v", got, err)
	}
	story, err := s.ReadStory(t.Context(), id)
	must(t, err)
	if len(story.Requests) != 1 || story.Requests[0].Status != session.RefundConfirmed {
		t.Errorf("requests: %+v", story.Requests)
	}
}
