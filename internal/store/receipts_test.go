package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const address = "ada@example.com"

func withAddress(n *store.NewSession) { n.Charge.CustomerEmail = address }

// openReceipts is a store that keeps addresses, on a Redis of its own.
func openReceipts(t *testing.T) (*services, *goredis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), client(t, server)
}

// leaseReceipt takes what is due in the bucket of a session.
func leaseReceipt(t *testing.T, s *services, id session.ID, lease time.Duration) []store.LeasedReceipt {
	t.Helper()
	leased, err := s.LeaseReceipts(t.Context(), id.Bucket(), lease, 10)
	must(t, err)
	return leased
}

func holdsAddress(t *testing.T, c *goredis.Client, id session.ID) bool {
	t.Helper()
	return c.HExists(t.Context(), merchantTag(id.MerchantID())+"session:"+id.String(), "u").Val()
}

// The address is kept for a receipt that may be sent, and for nothing else.
func TestCreateSession_Address(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	for name, test := range map[string]struct {
		receipts bool
		change   func(*store.Admission)
		want     bool
	}{
		"receipts":    {true, func(*store.Admission) {}, true},
		"no receipts": {false, func(*store.Admission) {}, false},
		"test mode":   {true, inTestMode, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.OpenWith(t, server.URL(), store.Options{Receipts: test.receipts})
			id := mustCreate(t, s, with(merchant(), test.change), with(newSession(), withAddress)).Session.ID
			if got := holdsAddress(t, c, id); got != test.want {
				t.Errorf("the address is stored: %t", got)
			}
		})
	}
}

// A session that has ended unpaid never owes a receipt, also if its payment comes late.
func TestSession_AddressEndsUnpaid(t *testing.T) {
	s, c := openReceipts(t)
	asks := merchant()
	for name, end := range map[string]func(id session.ID){
		"failed":    func(id session.ID) { must(t, second(s.Settle(t.Context(), id, failed("a")))) },
		"cancelled": func(id session.ID) { must(t, third(s.Cancel(t.Context(), asks, id))) },
		"expired, swept": func(id session.ID) {
			await.Until(t, time.Minute, "it is swept", func() bool {
				swept, err := s.Sweep(t.Context(), id.Bucket(), 10)
				must(t, err)
				return swept.Expired > 0
			})
		},
		"expired, paid late": func(id session.ID) {
			await.Until(t, time.Minute, "it is late", func() bool {
				settled, err := s.Settle(t.Context(), id, of(7, paid("other"))) // refused, whatever the status
				must(t, err)
				return settled.Session.Status == session.Expired
			})
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			lifetime := time.Hour
			if strings.HasPrefix(name, "expired") {
				lifetime = time.Millisecond
			}
			id := mustCreate(t, s, asks, with(with(newSession(), withAddress), func(n *store.NewSession) { n.Lifetime = lifetime })).Session.ID
			if lifetime == time.Hour && !holdsAddress(t, c, id) {
				t.Fatal("the pending session has no address")
			}
			end(id)
			if holdsAddress(t, c, id) {
				t.Error("the address is still stored")
			}
		})
	}
}

// A payment that completes a session with an address owes one receipt, however often it is reported.
func TestSettle_Receipt(t *testing.T) {
	s, _ := openReceipts(t)
	for name, test := range map[string]struct {
		settle func(id session.ID)
		change func(*store.NewSession)
		want   int
	}{
		"paid": {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, paid("a")))) }, withAddress, 1},
		"reported twice": {func(id session.ID) {
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
		}, withAddress, 1},
		"no address":     {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, paid("a")))) }, func(*store.NewSession) {}, 0},
		"failed":         {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, failed("a")))) }, withAddress, 0},
		"another amount": {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, of(7, paid("a"))))) }, withAddress, 0},
	} {
		t.Run(name, func(t *testing.T) {
			id := mustCreate(t, s, merchant(), with(newSession(), test.change)).Session.ID
			test.settle(id)
			leased := leaseReceipt(t, s, id, time.Minute)
			if len(leased) != test.want {
				t.Fatalf("%d receipts are due, want %d", len(leased), test.want)
			}
			if test.want == 0 {
				return
			}
			receipt, err := s.Receipt(t.Context(), leased[0])
			must(t, err)
			if receipt.Session.ID != id || receipt.Session.Charge.CustomerEmail != address || receipt.Session.Charge.AmountCents != 1250 || receipt.Age < 0 {
				t.Errorf("the receipt is of %+v", receipt)
			}
		})
	}
}

// No mail of test mode, even if another program has stored an address; and its payment is taken as usual.
func TestSettle_ReceiptInTestMode(t *testing.T) {
	s, c := openReceipts(t)
	id := mustCreate(t, s, with(merchant(), inTestMode), newSession()).Session.ID
	must(t, c.HSet(t.Context(), merchantTag(id.MerchantID())+"session:"+id.String(), "u", address).Err())
	if settled, err := s.SettleTest(t.Context(), id, paid("a")); err != nil || !settled.Applied {
		t.Errorf("the payment is %+v, %v", settled, err)
	}
	if leased := leaseReceipt(t, s, id, time.Minute); len(leased) != 0 {
		t.Errorf("%d receipts are due", len(leased))
	}
}

// Where receipts are turned off, none is listed for longer than its session lives, and the list ends with the last.
func TestSettle_ReceiptsTurnedOff(t *testing.T) {
	s, c := openReceipts(t)
	asks := merchant()
	key := merchantTag(asks.MerchantID) + "receipts"
	old := mustCreate(t, s, asks, with(newSession(), withAddress)).Session.ID
	must(t, second(s.Settle(t.Context(), old, paid("a"))))
	must(t, c.ZAdd(t.Context(), key, goredis.Z{Score: float64(time.Now().Add(-31 * 24 * time.Hour).UnixMilli()), Member: old.String()}).Err())
	id := mustCreate(t, s, asks, with(newSession(), withAddress)).Session.ID
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if listed := c.ZRange(t.Context(), key, 0, -1).Val(); len(listed) != 1 || listed[0] != id.String() {
		t.Errorf("listed are %q", listed)
	}
	if left := c.PTTL(t.Context(), key).Val(); left <= 0 {
		t.Errorf("the list has no end: %s", left)
	}
}

// What somebody else put where receipts are listed costs the mail, never the payment.
func TestSettle_ReceiptsOfAnotherType(t *testing.T) {
	s, c := openReceipts(t)
	asks := merchant()
	must(t, c.Set(t.Context(), merchantTag(asks.MerchantID)+"receipts", "text", 0).Err())
	id := mustCreate(t, s, asks, with(newSession(), withAddress)).Session.ID
	if settled, err := s.Settle(t.Context(), id, paid("a")); err != nil || !settled.Applied {
		t.Errorf("the payment is %+v, %v", settled, err)
	}
	if pending, err := s.PendingReceipts(t.Context()); err != nil || len(pending) != session.Buckets {
		t.Errorf("the others are not counted: %v, %v", pending, err)
	}
}

// A receipt that was sent is over, and so is the address.
func TestEndReceipt(t *testing.T) {
	s, c := openReceipts(t)
	id := mustCreate(t, s, merchant(), with(newSession(), withAddress)).Session.ID
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	leased := leaseReceipt(t, s, id, time.Minute)[0]
	must(t, s.EndReceipt(t.Context(), leased))
	if holdsAddress(t, c, id) {
		t.Error("the address is still stored")
	}
	if _, err := s.Receipt(t.Context(), leased); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the receipt is %v", err)
	}
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if count(t, s, id) != (store.PendingReceipts{Bucket: id.Bucket()}) {
		t.Error("the repeated report owes another receipt")
	}
	if err := s.EndReceipt(t.Context(), leased); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("ended twice: %v", err)
	}
}

// A settlement that fails half-way lists a session that is still pending. Its end leaves the address for the settlement that succeeds.
func TestEndReceipt_PendingSession(t *testing.T) {
	s, c := openReceipts(t)
	id := mustCreate(t, s, merchant(), with(newSession(), withAddress)).Session.ID
	must(t, c.ZAdd(t.Context(), merchantTag(id.MerchantID())+"receipts", goredis.Z{Score: 1, Member: id.String()}).Err())
	must(t, s.EndReceipt(t.Context(), leaseReceipt(t, s, id, time.Minute)[0]))
	if !holdsAddress(t, c, id) {
		t.Error("the address is gone")
	}
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if leased := leaseReceipt(t, s, id, time.Minute); len(leased) != 1 {
		t.Errorf("%d receipts are due", len(leased))
	}
}

func count(t *testing.T, s *services, id session.ID) store.PendingReceipts {
	t.Helper()
	all, err := s.PendingReceipts(t.Context())
	must(t, err)
	return all[id.Bucket()]
}

// A leased receipt is leased once; when the lease ends it is due again, and then the first lease is stale.
func TestLeaseReceipts(t *testing.T) {
	s, _ := openReceipts(t)
	id := mustCreate(t, s, merchant(), with(newSession(), withAddress)).Session.ID
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	first := leaseReceipt(t, s, id, 0)[0] // it has ended
	second := leaseReceipt(t, s, id, time.Hour)
	if len(second) != 1 || len(leaseReceipt(t, s, id, time.Hour)) != 0 {
		t.Fatal("want one holder after the first, and no other")
	}
	for name, err := range map[string]error{
		"end": s.EndReceipt(t.Context(), first), "defer": s.DeferReceipt(t.Context(), first, 0),
	} {
		if !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("%s by the first holder: %v", name, err)
		}
	}
	must(t, s.DeferReceipt(t.Context(), second[0], time.Hour))
	if got := count(t, s, id); got.Due != 0 || got.All != 1 {
		t.Errorf("deferred: %+v", got)
	}
}

// Whatever else is in the list leaves it: it must not be tried forever.
func TestLeaseReceipts_Stray(t *testing.T) {
	s, c := openReceipts(t)
	asks := merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	must(t, c.ZAdd(t.Context(), merchantTag(asks.MerchantID)+"receipts",
		goredis.Z{Score: 1, Member: "what is this"}, goredis.Z{Score: 1, Member: id.String()}).Err())
	leased := leaseReceipt(t, s, id, time.Minute)
	if len(leased) != 1 || count(t, s, id).All != 1 {
		t.Fatalf("leased %v of %+v", leased, count(t, s, id))
	}
	if _, err := s.Receipt(t.Context(), leased[0]); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a session that is not paid: %v, want ErrNotFound", err)
	}
}
