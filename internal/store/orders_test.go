package store_test

import (
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

func ordered(orderRef string) func(*store.NewSession) {
	return func(n *store.NewSession) { n.Charge.OrderRef = orderRef }
}

// orderSessions lists an order as its merchant and as the console, which must agree.
func orderSessions(t *testing.T, s *services, asks admission.Request, orderRef string) store.OrderSessions {
	t.Helper()
	admitted, listed, err := s.OrderSessions(t.Context(), asks, orderRef)
	must(t, err)
	if admitted.Now.IsZero() || admitted.Remaining == 0 {
		t.Errorf("admitted as %+v", admitted)
	}
	again, err := s.ReadOrderSessions(t.Context(), newAccount(asks), orderRef)
	must(t, err)
	if !slices.Equal(statuses(again), statuses(listed)) || again.More != listed.More {
		t.Errorf("without a key: %v, %t; with one: %v, %t", statuses(again), again.More, statuses(listed), listed.More)
	}
	return listed
}

// statuses are the listed sessions, each as "<id> <status>".
func statuses(listed store.OrderSessions) []string {
	var all []string
	for _, one := range listed.Sessions {
		all = append(all, one.ID.String()+" "+string(one.Status))
	}
	return all
}

func TestOrderSessions(t *testing.T) {
	s, ctx := open(t, shared.URL()), t.Context()
	live := merchant()
	test := with(live, inTestMode)
	neighbour := merchantIn(session.MerchantBucket(live.MerchantID))
	create := func(asks admission.Request, orderRef string) session.Session {
		return mustCreate(t, s, asks, with(newSession(), ordered(orderRef))).Session
	}
	pendingOne := create(live, "1001")
	paidOne := create(live, "1001")
	cancelledOne := create(live, "1001")
	spaced, composed := create(live, "  1003\u00a0"), create(live, "Caf\u00e9")
	copied, within := create(live, "\u202a1004\u202c\u200b"), create(live, "Table  7\u00a0b")
	other, foreign, tried := create(live, "1002"), create(neighbour, "1001"), create(test, "1001")
	must(t, second(s.Settle(ctx, paidOne.ID, paid("a"))))
	_, _, err := s.Cancel(ctx, live, cancelledOne.ID)
	must(t, err)
	mustCreate(t, s, live, with(newSession(), ordered("")))

	for name, test := range map[string]struct {
		asks     admission.Request
		orderRef string
		want     []string
	}{
		"newest first, in every state": {live, "1001", []string{
			cancelledOne.ID.String() + " CANCELLED", paidOne.ID.String() + " COMPLETED", pendingOne.ID.String() + " PENDING",
		}},
		"another order":         {live, "1002", []string{other.ID.String() + " PENDING"}},
		"spaces in the charge":  {live, "1003", []string{spaced.ID.String() + " PENDING"}},
		"spaces in the search":  {live, "1003 ", []string{spaced.ID.String() + " PENDING"}},
		"marks nobody sees":     {live, "1004", []string{copied.ID.String() + " PENDING"}},
		"in the search, too":    {live, "\ufeff10\u200d04", []string{copied.ID.String() + " PENDING"}},
		"spaces within":         {live, "Table 7 b", []string{within.ID.String() + " PENDING"}},
		"no space":              {live, "Table7b", nil},
		"an é of two":           {live, "Cafe\u0301", []string{composed.ID.String() + " PENDING"}},
		"of another merchant":   {neighbour, "1001", []string{foreign.ID.String() + " PENDING"}},
		"test mode":             {test, "1001", []string{tried.ID.String() + " PENDING"}},
		"an order that is none": {live, "100", nil},
		"charges without order": {live, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			listed := orderSessions(t, s, test.asks, test.orderRef)
			if !slices.Equal(statuses(listed), test.want) || listed.More {
				t.Errorf("%v and more: %t; want %v", statuses(listed), listed.More, test.want)
			}
		})
	}
	for _, listed := range orderSessions(t, s, live, "1001").Sessions {
		if _, want, err := s.Session(ctx, live, listed.ID); err != nil || !cmp.Equal(listed, want, sameSession) {
			t.Errorf("listed as %+v, read as %+v, %v", listed, want, err)
		}
	}
}

// A merchant that charges for one order without end gets the newest, and takes no more memory.
func TestOrderSessions_Many(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	var want []string
	const kept = store.MaxOrderSessions + 1
	for n := range 3 * kept {
		created := mustCreate(t, s, asks, newSession()).Session
		want = slices.Insert(want, 0, created.ID.String()+" PENDING")
		if n != store.MaxOrderSessions-1 && n != store.MaxOrderSessions && n != 3*kept-1 {
			continue
		}
		listed := orderSessions(t, s, asks, "1001")
		if most := min(len(want), store.MaxOrderSessions); !slices.Equal(statuses(listed), want[:most]) || listed.More != (len(want) > most) {
			t.Errorf("of %d sessions %v are listed, and more: %t", len(want), statuses(listed), listed.More)
		}
	}
	c := client(t, shared)
	for _, key := range c.Keys(t.Context(), merchantTag(asks.MerchantID)+"order:"+asks.MerchantID+":*").Val() {
		if length := c.StrLen(t.Context(), key).Val(); length != kept*session.RandomLength {
			t.Errorf("%s has %d bytes after %d sessions", key, length, 3*kept)
		}
	}
}

// An order with many sessions costs its merchant as much as it costs Redis, and is listed all the same.
func TestOrderSessions_Charged(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for name, test := range map[string]struct {
		sessions int
		burst    int64
		cost     int // requests
	}{
		"none":                                   {0, 10, 1},
		"a few":                                  {9, 10, 1},
		"ten":                                    {10, 10, 2},
		"the most":                               {20, 10, 3},
		"the most, room for itself and a second": {20, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: test.burst})
			for range test.sessions {
				mustCreate(t, s, with(asks, func(a *admission.Request) { a.Limit = merchant().Limit }), newSession())
			}
			must(t, c.Del(t.Context(), merchantTag(asks.MerchantID)+"rate:"+asks.MerchantID).Err())
			admitted, listed, err := s.OrderSessions(t.Context(), asks, "1001")
			must(t, err)
			if cost := admitted.Quota.Reset; len(listed.Sessions) != test.sessions || cost != time.Duration(test.cost)*time.Second {
				t.Errorf("%d sessions for %s", len(listed.Sessions), cost)
			}
		})
	}
}

func TestOrderSessions_ReplayAddsNothing(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	once := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, newID()) })
	for range 3 {
		mustCreate(t, s, asks, once)
	}
	mustCreate(t, s, asks, with(once, ordered("another"))) // the original is returned, whose order is the first
	if listed := orderSessions(t, s, asks, "1001"); len(listed.Sessions) != 1 {
		t.Errorf("%v are listed", statuses(listed))
	}
	if listed := orderSessions(t, s, asks, "another"); len(listed.Sessions) != 0 {
		t.Errorf("%v are listed for the order of a replay", statuses(listed))
	}
}

// As every read, the list expires what is due, and leaves out what is gone.
func TestOrderSessions_DueAndDeleted(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	deleted := mustCreate(t, s, asks, newSession()).Session
	pending := mustCreate(t, s, asks, newSession()).Session
	over := mustCreate(t, s, asks, with(newSession(), short)).Session
	must(t, c.Del(t.Context(), merchantTag(asks.MerchantID)+"session:"+deleted.ID.String()).Err())
	due(t, s, over)
	want := []string{over.ID.String() + " EXPIRED", pending.ID.String() + " PENDING"}
	listed := orderSessions(t, s, asks, "1001")
	if !slices.Equal(statuses(listed), want) || !listed.Sessions[0].EndedAt.Equal(over.ExpiresAt) {
		t.Errorf("%+v, want %v", listed.Sessions, want)
	}
	if kinds := eventKinds(sessionEvents(t, c, over.ID)); !slices.Equal(kinds, []v1alpha1.WebhookEvent{v1alpha1.EventSessionExpired}) {
		t.Errorf("events of the session that was due: %v", kinds)
	}
}

func TestOrderSessions_Errors(t *testing.T) {
	s := open(t, shared.URL())
	for name, test := range map[string]struct {
		change func(*admission.Request)
		want   error
	}{
		"dead key":          {func(a *admission.Request) { a.Accepted = false }, admission.ErrKeyRejected},
		"inactive merchant": {func(a *admission.Request) { a.Inactive = true }, admission.ErrMerchantNotActive},
		"over the limit":    {func(a *admission.Request) { a.Limit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 1} }, admission.ErrRateLimited},
	} {
		denied := with(merchant(), test.change)
		_, _ = s.Admit(t.Context(), denied) // uses up a limit of one
		if _, listed, err := s.OrderSessions(t.Context(), denied, "1001"); !errors.Is(err, test.want) || listed.Sessions != nil {
			t.Errorf("%s: %v, %v; want %v", name, statuses(listed), err, test.want)
		}
	}
	// A list that leaves out a payment would have a till charge twice.
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	must(t, client(t, shared).HSet(t.Context(), merchantTag(asks.MerchantID)+"session:"+created.ID.String(), "s", "PAID?").Err())
	if _, listed, err := s.OrderSessions(t.Context(), asks, "1001"); err == nil {
		t.Errorf("with an unreadable session: %v", statuses(listed))
	}
}

// A long list and a session with many refunds cost as much of a limit that is used up as of another: who sends requests as fast as
// they are admitted makes Redis do no more for them.
func TestLongReads_LimitUsedUp(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	for range store.MaxOrderSessions {
		mustCreate(t, s, asks, with(newSession(), ordered("1001")))
	}
	id := paidSession(t, s, asks)
	for range 30 {
		must(t, second(s.Refund(t.Context(), id, session.Refund{Rail: rail, Ref: rand.Text(), PaymentRef: "card-1", AmountCents: 1})))
	}
	asks.Limit = ratelimit.Policy{RequestsPerSecond: 2, Burst: 1}
	const interval = time.Second / 2
	for name, test := range map[string]struct {
		read func() (admission.Admitted, error)
		cost time.Duration
	}{
		"an order": {func() (admission.Admitted, error) {
			admitted, _, err := s.OrderSessions(t.Context(), asks, "1001")
			return admitted, err
		}, 3 * interval},
		"a session": {func() (admission.Admitted, error) {
			admitted, _, err := s.Story(t.Context(), asks, id)
			return admitted, err
		}, 2 * interval},
	} {
		must(t, client(t, shared).Del(t.Context(), merchantTag(asks.MerchantID)+"rate:"+asks.Account()).Err())
		admitted, err := test.read()
		must(t, err)
		if admitted.Reset != test.cost {
			t.Errorf("%s costs %s of the limit, want %s", name, admitted.Reset, test.cost)
		}
		if admitted, err := test.read(); !errors.Is(err, admission.ErrRateLimited) || admitted.RetryAfter <= test.cost-interval {
			t.Errorf("%s again: %+v, %v; want it refused for more than %s", name, admitted.Quota, err, test.cost-interval)
		}
	}
}

// What is not an index of ours neither stops a charge nor is listed.
func TestOrderSessions_KeyOfAnotherType(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	mustCreate(t, s, asks, newSession())
	key := c.Keys(t.Context(), merchantTag(asks.MerchantID)+"order:"+asks.MerchantID+":*").Val()[0]
	must(t, c.Del(t.Context(), key).Err())
	must(t, c.RPush(t.Context(), key, "what is this").Err())
	if listed := orderSessions(t, s, asks, "1001"); len(listed.Sessions) != 0 {
		t.Errorf("%v are listed", statuses(listed))
	}
	created := mustCreate(t, s, asks, newSession()).Session
	if listed := orderSessions(t, s, asks, "1001"); len(listed.Sessions) != 1 || listed.Sessions[0].ID != created.ID {
		t.Errorf("%v are listed after a charge", statuses(listed))
	}
}
