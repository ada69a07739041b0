package store_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A Redis at maxmemory refuses the first write of a script if it may grow, lets others pass, and allows every write after the first one. So a
// refused write that a script swallows, before one that passes, would leave half of the operation.
func TestScripts_FullRedis(t *testing.T) {
	server := redistest.Start(t, "--hz", "500") // looks for a WAIT whose time is over 500 times a second, not 10 times
	var cases []storetest.FullCase
	cases = append(cases, fullAdmissions()...)
	cases = append(cases, fullCreates(t)...)
	cases = append(cases, fullSettlements()...)
	cases = append(cases, fullHolds()...)
	cases = append(cases, fullRefunds()...)
	cases = append(cases, fullReads()...)
	cases = append(cases, fullSweeps(client(t, server))...)
	storetest.CheckFull(t, server, cases)
}

func cancelled(t *testing.T, s *services, asks admission.Request, id session.ID) {
	t.Helper()
	must(t, third(s.Cancel(t.Context(), asks, id)))
}

func third[A, B any](_ A, _ B, err error) error { return err }

// settled reports a payment. A store that waits for replicas, which there are not, applies it all the same.
func settled(t *testing.T, s *services, id session.ID, payment session.Payment) {
	t.Helper()
	if _, err := s.Settle(t.Context(), id, payment); !s.Replicated() {
		must(t, err)
	}
}

// held holds a session, as settled reports a payment.
func held(t *testing.T, s *services, id session.ID, hold store.Hold) {
	t.Helper()
	if _, err := s.Hold(t.Context(), id, hold); !s.Replicated() {
		must(t, err)
	}
}

// fullAdmissions are the requests of a merchant, the first one with a key, whose use is written, and a later one.
func fullAdmissions() (cases []storetest.FullCase) {
	for name, operation := range operations {
		for _, used := range []bool{false, true} {
			cases = append(cases, storetest.FullCase{
				Name: fmt.Sprintf("%s, used=%t", name, used),
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					if used {
						must(t, second(s.Admit(t.Context(), asks)))
					}
					return func() error { return second(operation(t.Context(), s, asks)) }
				},
			})
		}
	}
	return append(cases, storetest.FullCase{
		Name: "cancel",
		Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			id := mustCreate(t, s, asks, newSession()).Session.ID
			return func() error { return third(s.Cancel(t.Context(), asks, id)) }
		},
	})
}

func fullCreates(t *testing.T) (cases []storetest.FullCase) {
	t.Helper()
	for bits := range 32 {
		once, ordered, withEmail, announced, testMode := bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0, bits&16 > 0
		request := with(newSession(), func(n *store.NewSession) {
			if once {
				n.Idempotency = idempotencyKey(t, "order-1001")
			}
			if !ordered {
				n.Charge.OrderRef = ""
			}
			if withEmail {
				n.Charge.CustomerEmail = "ada@example.com"
			}
			if testMode {
				n.Charge.AmountCents = session.TestAmountCompletes
			}
			n.EmitCreated = announced
		})
		for _, repeated := range []bool{false, true} {
			cases = append(cases, storetest.FullCase{
				Name:  fmt.Sprintf("create, once=%t ordered=%t address=%t announced=%t test=%t repeated=%t", once, ordered, withEmail, announced, testMode, repeated),
				Store: store.Options{Receipts: true},
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					asks.TestMode = testMode
					if repeated {
						mustCreate(t, s, asks, request)
					}
					return func() error { return third(s.CreateSession(t.Context(), asks, request)) }
				},
			})
		}
	}
	return append(cases, storetest.FullCase{
		Name: "replay of a session that is due",
		Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			request := with(newSession(), func(n *store.NewSession) { short(n); n.Idempotency = idempotencyKey(t, "order-1001") })
			due(t, s, mustCreate(t, s, asks, request).Session)
			return func() error { return third(s.CreateSession(t.Context(), asks, request)) }
		},
	}, storetest.FullCase{
		Name: "sessions of an order that are due",
		Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			due(t, s, mustCreate(t, s, asks, with(newSession(), short)).Session)
			return func() error {
				return second(s.ReadOrderSessions(t.Context(), newAccount(asks), newSession().Charge.OrderRef))
			}
		},
	})
}

// fullSettlements are reports of a payment, of each outcome, for a session in each state.
func fullSettlements() (cases []storetest.FullCase) {
	payments := map[string]session.Payment{"paid": paid("a"), "failed": failed("a"), "wrong amount": of(77, paid("a")), "with a time": with(paid("a"), func(p *session.Payment) { p.PaidAt = rotatedAt })}
	states := map[string]func(*testing.T, *services, admission.Request, session.Session){
		"pending": func(*testing.T, *services, admission.Request, session.Session) {},
		"cancelled": func(t *testing.T, s *services, asks admission.Request, created session.Session) {
			t.Helper()
			cancelled(t, s, asks, created.ID)
		},
		"repeated": func(t *testing.T, s *services, _ admission.Request, created session.Session) {
			t.Helper()
			settled(t, s, created.ID, paid("a"))
		},
		"paid otherwise": func(t *testing.T, s *services, _ admission.Request, created session.Session) {
			t.Helper()
			settled(t, s, created.ID, paid("b"))
		},
		"held": func(t *testing.T, s *services, _ admission.Request, created session.Session) {
			t.Helper()
			held(t, s, created.ID, holding(bank, "a"))
		},
		"held by another": func(t *testing.T, s *services, _ admission.Request, created session.Session) {
			t.Helper()
			held(t, s, created.ID, holding(card, "b"))
		},
		"due": func(t *testing.T, s *services, _ admission.Request, created session.Session) {
			t.Helper()
			due(t, s, created)
		},
	}
	for what, payment := range payments {
		for state, arrange := range states {
			for bits := range 8 {
				withEmail, deleted, replicated := bits&1 > 0, bits&2 > 0, bits&4 > 0
				cases = append(cases, storetest.FullCase{
					Name:  fmt.Sprintf("settle, %s, %s, address=%t deleted=%t replicated=%t", what, state, withEmail, deleted, replicated),
					Store: store.Options{Receipts: true},
					Redis: func(o *redis.Options) {
						if replicated {
							o.Replicas, o.ReplicaTimeout = 1, time.Millisecond // which there are not
						}
					},
					Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
						t.Helper()
						request := newSession()
						if withEmail {
							request.Charge.CustomerEmail = "ada@example.com"
						}
						if state == "due" {
							request.Lifetime = 30 * time.Millisecond
						}
						created := mustCreate(t, s, asks, request).Session
						arrange(t, s, asks, created)
						if deleted {
							return func() error { return second(s.SettleDeleted(t.Context(), created.ID, payment)) }
						}
						return func() error { return second(s.Settle(t.Context(), created.ID, payment)) }
					},
				})
			}
		}
	}
	return append(cases, storetest.FullCase{
		Name: "settle in test mode",
		Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			asks.TestMode = true
			id := mustCreate(t, s, asks, newSession()).Session.ID
			return func() error { return second(s.SettleTest(t.Context(), id, paid("a"))) }
		},
	})
}

func fullHolds() (cases []storetest.FullCase) {
	for name, hold := range map[string]store.Hold{"hold": holding(bank, "a"), "release": releasing(bank, "a"), "of another": holding(card, "b")} {
		for _, before := range []bool{false, true} {
			cases = append(cases, storetest.FullCase{
				Name:   fmt.Sprintf("%s, held=%t", name, before),
				Drains: name == "release",
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					id := mustCreate(t, s, asks, newSession()).Session.ID
					if before {
						held(t, s, id, holding(bank, "a"))
					}
					return func() error { return second(s.Hold(t.Context(), id, hold)) }
				},
			})
		}
	}
	return cases
}

func fullRefunds() (cases []storetest.FullCase) {
	for bits := range 8 {
		whole, deleted, late := bits&1 > 0, bits&2 > 0, bits&4 > 0
		cases = append(cases, storetest.FullCase{
			Name: fmt.Sprintf("refund, whole=%t deleted=%t late=%t", whole, deleted, late),
			Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
				t.Helper()
				id := mustCreate(t, s, asks, newSession()).Session.ID
				if late {
					cancelled(t, s, asks, id)
				}
				must(t, second(s.Settle(t.Context(), id, by(rail, paid("a")))))
				refund := refunding("a", "r", 50)
				if whole {
					refund.AmountCents = 1250
				}
				if deleted {
					return func() error { return second(s.RefundDeleted(t.Context(), id, refund)) }
				}
				return func() error { return second(s.Refund(t.Context(), id, refund)) }
			},
		})
	}
	ask := func(t *testing.T, s *services, asks admission.Request, id session.ID) store.RequestedRefund {
		t.Helper()
		_, requested, err := s.RequestRefund(t.Context(), asks, id, asking(t, "k1", 50))
		if !s.Replicated() {
			must(t, err)
		}
		return requested
	}
	for _, testMode := range []bool{false, true} {
		for _, repeated := range []bool{false, true} {
			cases = append(cases, storetest.FullCase{
				Name: fmt.Sprintf("ask for a refund, test=%t repeated=%t", testMode, repeated),
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					asks.TestMode = testMode
					id := paidSession(t, s, asks)
					if repeated {
						ask(t, s, asks, id)
					}
					return func() error { return third(s.RequestRefund(t.Context(), asks, id, asking(t, "k1", 50))) }
				},
			})
		}
	}
	cases = append(cases, storetest.FullCase{Name: "people ask for a refund", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
		t.Helper()
		id := paidSession(t, s, asks)
		return func() error { return second(s.RequestRefundFor(t.Context(), id, asking(t, "k1", 0))) }
	}}, storetest.FullCase{Name: "list what a rail owes", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
		t.Helper()
		ask(t, s, asks, paidSession(t, s, asks))
		return func() error { return second(s.Owed(t.Context(), rail, store.OwedPlace{}, 10)) }
	}})
	for _, deleted := range []bool{false, true} {
		for name, answer := range map[string]func(*testing.T, *services, session.ID, string) error{
			"confirm": func(t *testing.T, s *services, id session.ID, ref string) error {
				t.Helper()
				if deleted {
					return second(s.RefundDeleted(t.Context(), id, refunding("card-1", ref, 50)))
				}
				return second(s.Refund(t.Context(), id, refunding("card-1", ref, 50)))
			},
			"displace": func(t *testing.T, s *services, id session.ID, _ string) error {
				t.Helper()
				if deleted {
					return second(s.RefundDeleted(t.Context(), id, refunding("card-1", "own", 1250)))
				}
				return second(s.Refund(t.Context(), id, refunding("card-1", "own", 1250)))
			},
			"reject": func(t *testing.T, s *services, id session.ID, ref string) error {
				t.Helper()
				rejection := store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: ref, Reason: "closed"}
				if deleted {
					return second(s.RejectRefundDeleted(t.Context(), id, rejection))
				}
				return second(s.RejectRefund(t.Context(), id, rejection))
			},
		} {
			cases = append(cases, storetest.FullCase{
				Name: fmt.Sprintf("%s what was asked for, deleted=%t", name, deleted),
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					id := paidSession(t, s, asks)
					ask(t, s, asks, id)
					ref := session.NewRefundID(id, idempotencyKey(t, "k1"))
					return func() error { return answer(t, s, id, ref) }
				},
			})
		}
	}
	return append(cases, storetest.FullCase{Name: "count refunds", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
		t.Helper()
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, of(7, paid("a")))))
		return func() error { return second(s.CountOwed(t.Context(), []time.Duration{0})) }
	}}, storetest.FullCase{Name: "find overdue requests", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
		t.Helper()
		ask(t, s, asks, paidSession(t, s, asks))
		return func() error {
			return second(s.OverdueRequests(t.Context(), store.Account{MerchantID: asks.MerchantID}, 0))
		}
	}})
}

// fullReads are reads of a session that a reader may have to expire first.
func fullReads() (cases []storetest.FullCase) {
	reads := map[string]func(*testing.T, *services, admission.Request, session.ID) error{
		"public": func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			return third(s.PublicSession(t.Context(), payer(), id))
		},
		"watched": func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			return second(s.WatchedSession(t.Context(), id))
		},
		"merchant's": func(t *testing.T, s *services, asks admission.Request, id session.ID) error {
			t.Helper()
			return third(s.Session(t.Context(), asks, id))
		},
		"story": func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			return second(s.ReadStory(t.Context(), id))
		},
		"rail's": func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			return second(s.Payments(t.Context(), id))
		},
		"ended": func(t *testing.T, s *services, asks admission.Request, _ session.ID) error {
			t.Helper()
			return second(s.ReadEnded(t.Context(), newAccount(asks), store.EndedQuery{Limit: 5}))
		},
	}
	for name, read := range reads {
		for _, expires := range []bool{false, true} {
			cases = append(cases, storetest.FullCase{
				Name: fmt.Sprintf("%s read, due=%t", name, expires),
				Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
					t.Helper()
					request := newSession()
					if expires {
						short(&request)
					}
					created := mustCreate(t, s, asks, request).Session
					if expires {
						due(t, s, created)
					}
					return func() error { return read(t, s, asks, created.ID) }
				},
			})
		}
	}
	return cases
}

func fullSweeps(c *goredis.Client) []storetest.FullCase {
	sweep := func(t *testing.T, s *services, asks admission.Request) func() error {
		t.Helper()
		return func() error { return second(s.Sweep(t.Context(), session.MerchantBucket(asks.MerchantID), 10)) }
	}
	return []storetest.FullCase{
		{Name: "sweep of sessions that are due", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			due(t, s, mustCreate(t, s, asks, with(newSession(), short)).Session)
			return sweep(t, s, asks)
		}},
		{Name: "sweep of a session that has ended", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			created := mustCreate(t, s, asks, with(newSession(), lasting(50*time.Millisecond))).Session
			cancelled(t, s, asks, created.ID)
			due(t, s, created)
			return sweep(t, s, asks)
		}},
		{Name: "sweep of an unreadable session", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			created := mustCreate(t, s, asks, with(newSession(), short)).Session
			due(t, s, created)
			key := merchantTag(asks.MerchantID) + "session:" + created.ID.String()
			must(t, c.HSet(t.Context(), key, "x", "garbage").Err())
			return sweep(t, s, asks)
		}},
		{Name: "sweep of a session that is listed by itself", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			created := mustCreate(t, s, asks, with(newSession(), short)).Session
			due(t, s, created)
			tag := merchantTag(asks.MerchantID)
			must(t, c.Del(t.Context(), tag+"expiry", tag+"expiry:10").Err())
			must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: tag + "session:" + created.ID.String()}).Err())
			return sweep(t, s, asks)
		}},
	}
}
