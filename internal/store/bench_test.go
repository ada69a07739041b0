package store_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Each benchmark reports, beside what a caller sees, how long Redis itself worked on one request: that
// is what bounds a bucket. Run them with: go test -run '^$' -bench . ./internal/store

// beyondReach is more than a Redis can serve, so that no request of a benchmark is limited.
var beyondReach = ratelimit.Policy{RequestsPerSecond: 1_000_000, Burst: 1_000_000}

func busyMerchant() admission.Request {
	return with(merchant(), func(a *admission.Request) { a.Limit = beyondReach })
}

func BenchmarkAdmit(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Admit(ctx, asks)
			return err
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	asks, request := busyMerchant(), newSession()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, request)
			return err
		}
	})
}

func BenchmarkCreateWithoutOrder(b *testing.B) {
	asks, request := busyMerchant(), with(newSession(), func(n *store.NewSession) { n.Charge.OrderRef = "" })
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, request)
			return err
		}
	})
}

// Each charge is of an order of its own.
func BenchmarkCreateWithOrder(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, with(newSession(), func(n *store.NewSession) { n.Charge.OrderRef = newID() }))
			return err
		}
	})
}

func BenchmarkListOrder(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		for range store.MaxOrderSessions {
			mustCreate(b, s, asks, newSession())
		}
		return func(ctx context.Context) error {
			_, _, err := s.OrderSessions(ctx, asks, "1001")
			return err
		}
	})
}

func BenchmarkListEnded(b *testing.B) {
	for name, query := range map[string]store.EndedQuery{"page": {Limit: 100}, "nothing in a thousand": {Status: session.Completed, Limit: 100}} {
		b.Run(name, func(b *testing.B) {
			asks := busyMerchant()
			benchmark(b, func(s *services) func(context.Context) error {
				for range 1000 {
					_, _, err := s.Cancel(b.Context(), asks, mustCreate(b, s, asks, newSession()).Session.ID)
					must(b, err)
				}
				return func(ctx context.Context) error {
					_, _, err := s.Ended(ctx, asks, query)
					return err
				}
			})
		})
	}
}

// What a merchant reads of its feed for the price of one request.
func BenchmarkFeed(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		for range 20 {
			_, _, err := s.Cancel(b.Context(), asks, mustCreate(b, s, asks, newSession()).Session.ID)
			must(b, err)
		}
		return func(ctx context.Context) error {
			_, page, err := s.Feed(ctx, asks, feed.Cursor{}, 20)
			if len(page.Entries) != 20 {
				b.Fatal(len(page.Entries))
			}
			return err
		}
	})
}

func BenchmarkCreateWithIdempotencyKey(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			request := newSession()
			var err error
			if request.Idempotency, err = session.ParseIdempotencyKey(newID()); err != nil {
				return err
			}
			_, _, err = s.CreateSession(ctx, asks, request)
			return err
		}
	})
}

// Its redis-µs/op are of one script of the two.
func BenchmarkCreateAndSettle(b *testing.B) {
	asks, request := busyMerchant(), newSession()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, created, err := s.CreateSession(ctx, asks, request)
			if err != nil {
				return err
			}
			_, err = s.Settle(ctx, created.Session.ID, paid("rail-1"))
			return err
		}
	})
}

// What a hold costs the report that ends it.
func BenchmarkSettle_Held(b *testing.B) {
	settle := func(b *testing.B, s *services, _ admission.Request, id session.ID) {
		b.Helper()
		must(b, second(s.Settle(b.Context(), id, paid("rail-1"))))
	}
	b.Run("without a hold", func(b *testing.B) {
		benchmarkSessions(b, func(*services, admission.Request, session.ID) {}, settle)
	})
	b.Run("by the holder", func(b *testing.B) {
		hold := func(s *services, _ admission.Request, id session.ID) {
			must(b, second(s.Hold(b.Context(), id, holding(bank, "rail-1"))))
		}
		benchmarkSessions(b, hold, settle)
	})
}

// What refunds cost, beside the report of the payment. redis-µs/op are of a script: a request runs two of them, a list of 50 refunds 51.
func BenchmarkRefunds(b *testing.B) {
	settle := func(s *services, _ admission.Request, id session.ID) {
		must(b, second(s.Settle(b.Context(), id, by(rail, paid("card-1")))))
	}
	ask := func(s *services, asks admission.Request, id session.ID) {
		must(b, third(s.RequestRefund(b.Context(), asks, id, asking(b, "refund-1", 500))))
	}
	confirm := func(s *services, _ admission.Request, id session.ID) {
		refundID := session.NewRefundID(id, idempotencyKey(b, "refund-1"))
		must(b, second(s.Refund(b.Context(), id, refunding("card-1", refundID, 500))))
	}
	call := func(step func(*services, admission.Request, session.ID)) func(*testing.B, *services, admission.Request, session.ID) {
		return func(_ *testing.B, s *services, asks admission.Request, id session.ID) { step(s, asks, id) }
	}
	b.Run("settle", func(b *testing.B) {
		benchmarkSessions(b, func(*services, admission.Request, session.ID) {}, call(settle))
	})
	b.Run("request", func(b *testing.B) { benchmarkSessions(b, settle, call(ask)) })
	b.Run("confirm", func(b *testing.B) {
		benchmarkSessions(b, func(s *services, asks admission.Request, id session.ID) {
			settle(s, asks, id)
			ask(s, asks, id)
		}, call(confirm))
	})
	b.Run("list 50 of 1000", func(b *testing.B) {
		benchmarkSessions(b, func(s *services, asks admission.Request, id session.ID) {
			settle(s, asks, id)
			ask(s, asks, id)
		}, func(b *testing.B, s *services, _ admission.Request, _ session.ID) {
			b.Helper()
			must(b, second(s.Owed(b.Context(), rail, store.OwedPlace{}, 50)))
		})
	})
}

// benchmarkSessions calls each session once, a thousand at a time, which prepare has prepared. Its redis-µs/op are those of the calls alone.
func benchmarkSessions(
	b *testing.B, prepare func(*services, admission.Request, session.ID), call func(*testing.B, *services, admission.Request, session.ID),
) {
	b.Helper()
	server := redistest.Start(b)
	s, c, asks := open(b, server.URL()), client(b, server), busyMerchant()
	var ready []session.ID
	prepareAll := func() {
		for range 1000 {
			id := mustCreate(b, s, asks, newSession()).Session.ID
			ready = append(ready, id)
			prepare(s, asks, id)
		}
		call(b, s, asks, ready[0]) // the server gets to know the script
		ready = ready[1:]
		must(b, c.ConfigResetStat(b.Context()).Err())
	}
	b.ReportAllocs()
	micros, n := 0.0, 0
	for b.Loop() {
		if len(ready) == 0 {
			b.StopTimer()
			if n > 0 {
				micros += redisMicros(b, c)
			}
			prepareAll()
			n++
			b.StartTimer()
		}
		call(b, s, asks, ready[0])
		ready = ready[1:]
	}
	b.ReportMetric((micros+redisMicros(b, c))/float64(n), "redis-µs/op")
}

func BenchmarkReplay(b *testing.B) {
	asks, request := busyMerchant(), newSession()
	request.Idempotency = idempotencyKey(b, "order-1001")
	benchmark(b, func(s *services) func(context.Context) error {
		mustCreate(b, s, asks, request)
		return func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, request)
			return err
		}
	})
}

func BenchmarkRead(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		id := mustCreate(b, s, asks, newSession()).Session.ID
		return func(ctx context.Context) error {
			_, _, err := s.Session(ctx, asks, id)
			return err
		}
	})
}

func BenchmarkPublicRead(b *testing.B) {
	benchmark(b, func(s *services) func(context.Context) error {
		id := mustCreate(b, s, busyMerchant(), newSession()).Session.ID
		asks := with(payer(), func(p *store.PublicAdmission) { p.Limit = beyondReach })
		return func(ctx context.Context) error {
			_, _, err := s.PublicSession(ctx, asks, id)
			return err
		}
	})
}

// Its redis-µs/op are of one script of the two.
func BenchmarkCreateAndCancel(b *testing.B) {
	asks, request := busyMerchant(), newSession()
	benchmark(b, func(s *services) func(context.Context) error {
		return func(ctx context.Context) error {
			_, created, err := s.CreateSession(ctx, asks, request)
			if err != nil {
				return err
			}
			_, _, err = s.Cancel(ctx, asks, created.Session.ID)
			return err
		}
	})
}

// A request of a key that was just rotated: the override decides.
func BenchmarkAdmitByOverride(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		override := keystate.Override{
			Ref: keyRef(asks), Order: published.Order{Revision: asks.Order.Revision + 1},
			Accepted: []keystate.Accepted{{Digest: asks.Digest}},
		}
		if err := s.Keys.WriteOverride(b.Context(), override); err != nil {
			b.Fatal(err)
		}
		return func(ctx context.Context) error {
			_, err := s.Admit(ctx, asks)
			return err
		}
	})
}

func BenchmarkWriteOverride(b *testing.B) {
	asks := busyMerchant()
	benchmark(b, func(s *services) func(context.Context) error {
		revision := int64(0)
		return func(ctx context.Context) error {
			revision++
			return s.Keys.WriteOverride(ctx, keystate.Override{
				Ref: keyRef(asks), Order: published.Order{Revision: revision},
				Accepted: []keystate.Accepted{{Digest: asks.Digest}},
			})
		}
	})
}

// What a dispatcher asks once a second and for each bucket where there is something to expire.
func BenchmarkSweepOfNothing(b *testing.B) {
	benchmark(b, func(s *services) func(context.Context) error {
		created := mustCreate(b, s, busyMerchant(), newSession()).Session
		return func(ctx context.Context) error {
			_, err := s.Sweep(ctx, created.ID.Bucket(), 100)
			return err
		}
	})
}

// Its ns/op and redis-µs/op are of one session that is due: of a merchant with one lifetime, and of one that changed it each time.
func BenchmarkSweep(b *testing.B) {
	for name, lifetimes := range map[string]int{"one lifetime": 1, "10000 lifetimes": 10_000} {
		b.Run(name, func(b *testing.B) {
			server := redistest.Start(b)
			s, c, asks := open(b, server.URL()), client(b, server), with(busyMerchant(), func(a *admission.Request) { a.MerchantID = merchantIn(7).MerchantID })
			for i := range b.N {
				mustCreate(b, s, asks, with(newSession(), lasting(time.Duration(1+i%lifetimes)*time.Millisecond)))
			}
			due(b, s, mustCreate(b, s, asks, with(newSession(), lasting(time.Duration(lifetimes)*time.Millisecond))).Session)
			must(b, c.ConfigResetStat(b.Context()).Err())
			b.ResetTimer()
			for more := true; more; {
				swept, err := s.Sweep(b.Context(), 7, 100)
				must(b, err)
				more = swept.More
			}
			b.StopTimer()
			if left := c.ZCard(b.Context(), "{b07n}:expiry").Val(); left > 0 {
				b.Errorf("%d queues are left", left)
			}
			b.ReportMetric(float64(scriptsRun(b, c))*redisMicros(b, c)/float64(b.N), "redis-µs/op")
		})
	}
}

var (
	usecPerCall = regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`)
	calls       = regexp.MustCompile(`cmdstat_evalsha:calls=([0-9]+)`)
)

func benchmark(b *testing.B, prepare func(*services) func(context.Context) error) {
	b.Helper()
	server := redistest.Start(b)
	s := open(b, server.URL())
	request := prepare(s)
	if err := request(b.Context()); err != nil { // the server gets to know the script
		b.Fatal(err)
	}
	c := client(b, server)
	if err := c.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := request(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(redisMicros(b, c), "redis-µs/op")
}

// redisMicros is what a script has taken on average, as counted by Redis since its statistics were reset.
func redisMicros(b *testing.B, c *goredis.Client) float64 {
	b.Helper()
	found := usecPerCall.FindStringSubmatch(c.Info(b.Context(), "commandstats").Val())
	if found == nil {
		b.Fatal("Redis has no statistics")
	}
	micros, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return micros
}

// scriptsRun is how many scripts Redis has run since its statistics were reset.
func scriptsRun(t testing.TB, c *goredis.Client) int {
	t.Helper()
	found := calls.FindStringSubmatch(c.Info(t.Context(), "commandstats").Val())
	if found == nil {
		t.Fatal("Redis has run no script")
	}
	n, err := strconv.Atoi(found[1])
	must(t, err)
	return n
}

// What it costs that replicas must have a settlement before it is answered: of a new settlement each, by one caller, and by
// several. Both have a replica that follows, on the same machine.
func BenchmarkSettle(b *testing.B) {
	for _, replicas := range []int{0, 1} {
		for _, callers := range []int{1, 8} {
			b.Run(fmt.Sprintf("replicas=%d/callers=%d", replicas, callers), func(b *testing.B) {
				master := redistest.Start(b, "--repl-diskless-sync-delay", "0")
				follow(b, master)
				s := open(b, master.URL(), copied(replicas, patience))
				asks := busyMerchant()
				sessions := make(chan session.ID, b.N)
				for range b.N {
					sessions <- mustCreate(b, s, asks, newSession()).Session.ID
				}
				b.SetParallelism(callers)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(settling *testing.PB) {
					for settling.Next() {
						if _, err := s.Settle(b.Context(), <-sessions, paid("rail-1")); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
