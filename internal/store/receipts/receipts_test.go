package receipts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/receipts"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

type services = storetest.Services

var (
	client      = storetest.Inspect
	merchant    = storetest.Merchant
	merchantTag = storetest.Tag
	must        = storetest.Must
	mustCreate  = storetest.MustCreate
	newSession  = storetest.NewSession
	paid        = storetest.Paid
	failed      = storetest.Failed
	of          = storetest.Of
)

func second[T any](_ T, err error) error { return err }

func inTestMode(a *admission.Request) {
	a.TestMode, a.KeyID, a.Digest = true, storetest.ID(), storetest.Digest()
}

const address = "ada@example.com"

// owing is a session whose customer gets a receipt when it is paid.
func owing() store.NewSession {
	request := newSession()
	request.Charge.CustomerEmail = address
	return request
}

// open is a store that keeps addresses, on a Redis of its own.
func open(t *testing.T) (*services, *goredis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), client(t, server)
}

// leaseReceipt takes what is due in the bucket of a session.
func leaseReceipt(t *testing.T, s *services, id session.ID, lease time.Duration) []receipts.Leased {
	t.Helper()
	leased, err := s.Receipts.Lease(t.Context(), id.Bucket(), lease, 10)
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
		change   func(*admission.Request)
		want     bool
	}{
		"receipts":    {true, func(*admission.Request) {}, true},
		"no receipts": {false, func(*admission.Request) {}, false},
		"test mode":   {true, inTestMode, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.OpenWith(t, server.URL(), store.Options{Receipts: test.receipts})
			asks := merchant()
			test.change(&asks)
			id := mustCreate(t, s, asks, owing()).Session.ID
			if got := holdsAddress(t, c, id); got != test.want {
				t.Errorf("the address is stored: %t", got)
			}
		})
	}
}

// A session that has ended unpaid never owes a receipt, also if its payment comes late.
func TestSession_AddressEndsUnpaid(t *testing.T) {
	s, c := open(t)
	asks := merchant()
	for name, end := range map[string]func(id session.ID){
		"failed":    func(id session.ID) { must(t, second(s.Settle(t.Context(), id, failed("a")))) },
		"cancelled": func(id session.ID) { _, _, err := s.Cancel(t.Context(), asks, id); must(t, err) },
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
			request := owing()
			if strings.HasPrefix(name, "expired") {
				request.Lifetime = time.Millisecond
			}
			id := mustCreate(t, s, asks, request).Session.ID
			if request.Lifetime > time.Millisecond && !holdsAddress(t, c, id) {
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
	s, _ := open(t)
	for name, test := range map[string]struct {
		settle  func(id session.ID)
		request store.NewSession
		want    int
	}{
		"paid": {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, paid("a")))) }, owing(), 1},
		"reported twice": {func(id session.ID) {
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
		}, owing(), 1},
		"no address":     {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, paid("a")))) }, newSession(), 0},
		"failed":         {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, failed("a")))) }, owing(), 0},
		"another amount": {func(id session.ID) { must(t, second(s.Settle(t.Context(), id, of(7, paid("a"))))) }, owing(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			id := mustCreate(t, s, merchant(), test.request).Session.ID
			test.settle(id)
			leased := leaseReceipt(t, s, id, time.Minute)
			if len(leased) != test.want {
				t.Fatalf("%d receipts are due, want %d", len(leased), test.want)
			}
			if test.want == 0 {
				return
			}
			receipt, err := s.Receipts.Read(t.Context(), leased[0])
			must(t, err)
			if receipt.Session.ID != id || receipt.Session.Charge.CustomerEmail != address || receipt.Session.Charge.AmountCents != 1250 || receipt.Age < 0 {
				t.Errorf("the receipt is of %+v", receipt)
			}
		})
	}
}

// No mail of test mode, even if another program has stored an address; and its payment is taken as usual.
func TestSettle_ReceiptInTestMode(t *testing.T) {
	s, c := open(t)
	asks := merchant()
	inTestMode(&asks)
	id := mustCreate(t, s, asks, newSession()).Session.ID
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
	s, c := open(t)
	asks := merchant()
	key := merchantTag(asks.MerchantID) + "receipts"
	old := mustCreate(t, s, asks, owing()).Session.ID
	must(t, second(s.Settle(t.Context(), old, paid("a"))))
	must(t, c.ZAdd(t.Context(), key, goredis.Z{Score: float64(time.Now().Add(-31 * 24 * time.Hour).UnixMilli()), Member: old.String()}).Err())
	id := mustCreate(t, s, asks, owing()).Session.ID
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
	s, c := open(t)
	asks := merchant()
	must(t, c.Set(t.Context(), merchantTag(asks.MerchantID)+"receipts", "text", 0).Err())
	id := mustCreate(t, s, asks, owing()).Session.ID
	if settled, err := s.Settle(t.Context(), id, paid("a")); err != nil || !settled.Applied {
		t.Errorf("the payment is %+v, %v", settled, err)
	}
	if pending, err := s.Receipts.Pending(t.Context()); err != nil || len(pending) != session.Buckets {
		t.Errorf("the others are not counted: %v, %v", pending, err)
	}
}

// A receipt that was sent is over, and so is the address.
func TestEnd(t *testing.T) {
	s, c := open(t)
	id := mustCreate(t, s, merchant(), owing()).Session.ID
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	leased := leaseReceipt(t, s, id, time.Minute)[0]
	must(t, s.Receipts.End(t.Context(), leased))
	if holdsAddress(t, c, id) {
		t.Error("the address is still stored")
	}
	if _, err := s.Receipts.Read(t.Context(), leased); !errors.Is(err, receipts.ErrNotOwed) {
		t.Errorf("the receipt is %v", err)
	}
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if count(t, s, id) != (receipts.Pending{Bucket: id.Bucket()}) {
		t.Error("the repeated report owes another receipt")
	}
	if err := s.Receipts.End(t.Context(), leased); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("ended twice: %v", err)
	}
}

// A settlement that fails half-way lists a session that is still pending. Its end leaves the address for the settlement that succeeds.
func TestEnd_PendingSession(t *testing.T) {
	s, c := open(t)
	id := mustCreate(t, s, merchant(), owing()).Session.ID
	must(t, c.ZAdd(t.Context(), merchantTag(id.MerchantID())+"receipts", goredis.Z{Score: 1, Member: id.String()}).Err())
	must(t, s.Receipts.End(t.Context(), leaseReceipt(t, s, id, time.Minute)[0]))
	if !holdsAddress(t, c, id) {
		t.Error("the address is gone")
	}
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if leased := leaseReceipt(t, s, id, time.Minute); len(leased) != 1 {
		t.Errorf("%d receipts are due", len(leased))
	}
}

func count(t *testing.T, s *services, id session.ID) receipts.Pending {
	t.Helper()
	all, err := s.Receipts.Pending(t.Context())
	must(t, err)
	return all[id.Bucket()]
}

// A leased receipt is leased once; when the lease ends it is due again, and then the first lease is stale.
func TestLease(t *testing.T) {
	s, _ := open(t)
	id := mustCreate(t, s, merchant(), owing()).Session.ID
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	first := leaseReceipt(t, s, id, 0)[0] // it has ended
	second := leaseReceipt(t, s, id, time.Hour)
	if len(second) != 1 || len(leaseReceipt(t, s, id, time.Hour)) != 0 {
		t.Fatal("want one holder after the first, and no other")
	}
	for name, err := range map[string]error{
		"end": s.Receipts.End(t.Context(), first), "defer": s.Receipts.Defer(t.Context(), first, 0),
	} {
		if !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("%s by the first holder: %v", name, err)
		}
	}
	must(t, s.Receipts.Defer(t.Context(), second[0], time.Hour))
	if got := count(t, s, id); got.Due != 0 || got.All != 1 {
		t.Errorf("deferred: %+v", got)
	}
}

// Whatever else is in the list leaves it: it must not be tried forever.
func TestLease_Stray(t *testing.T) {
	s, c := open(t)
	asks := merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	must(t, c.ZAdd(t.Context(), merchantTag(asks.MerchantID)+"receipts",
		goredis.Z{Score: 1, Member: "what is this"}, goredis.Z{Score: 1, Member: id.String()}).Err())
	leased := leaseReceipt(t, s, id, time.Minute)
	if len(leased) != 1 || count(t, s, id).All != 1 {
		t.Fatalf("leased %v of %+v", leased, count(t, s, id))
	}
	if _, err := s.Receipts.Read(t.Context(), leased[0]); !errors.Is(err, receipts.ErrNotOwed) {
		t.Errorf("a session that is not paid: %v, want ErrNotOwed", err)
	}
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	server := redistest.Start(t)
	s, c := storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), client(t, server)
	asks := merchant()
	storetest.CheckDeclared(t, server, func() {
		for range 2 {
			must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, owing()).Session.ID, paid("a"))))
		}
		must(t, c.ZAdd(t.Context(), merchantTag(asks.MerchantID)+"receipts", goredis.Z{Score: 1, Member: "what is this"}).Err())
		leased, err := s.Receipts.Lease(t.Context(), session.MerchantBucket(asks.MerchantID), time.Minute, 10)
		must(t, err)
		must(t, second(s.Receipts.Read(t.Context(), leased[0])))
		must(t, s.Receipts.Defer(t.Context(), leased[0], time.Minute))
		must(t, s.Receipts.End(t.Context(), leased[1]))
		must(t, second(s.Receipts.Pending(t.Context())))
	})
}

func TestScripts_FullRedis(t *testing.T) {
	leased := func(operation func(*testing.T, *services, receipts.Leased) error) func(*testing.T, *services, admission.Request) func() error {
		return func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			id := mustCreate(t, s, asks, owing()).Session.ID
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
			receipt := leaseReceipt(t, s, id, time.Minute)[0]
			return func() error { return operation(t, s, receipt) }
		}
	}
	kept := store.Options{Receipts: true}
	storetest.CheckFull(t, redistest.Start(t), []storetest.FullCase{
		{Name: "lease", Store: kept, Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			id := mustCreate(t, s, asks, owing()).Session.ID
			must(t, second(s.Settle(t.Context(), id, paid("a"))))
			return func() error {
				leased, err := s.Receipts.Lease(t.Context(), id.Bucket(), time.Minute, 10)
				if err == nil && len(leased) != 1 {
					err = fmt.Errorf("%d receipts", len(leased))
				}
				return err
			}
		}},
		{Name: "read", Store: kept, Drains: true, Arrange: leased(func(t *testing.T, s *services, r receipts.Leased) error {
			t.Helper()
			return second(s.Receipts.Read(t.Context(), r))
		})},
		{Name: "end", Store: kept, Drains: true, Arrange: leased(func(t *testing.T, s *services, r receipts.Leased) error {
			t.Helper()
			return s.Receipts.End(t.Context(), r)
		})},
		{Name: "defer", Store: kept, Drains: true, Arrange: leased(func(t *testing.T, s *services, r receipts.Leased) error {
			t.Helper()
			return s.Receipts.Defer(t.Context(), r, time.Minute)
		})},
		{Name: "count", Store: kept, Drains: true, Arrange: leased(func(t *testing.T, s *services, _ receipts.Leased) error {
			t.Helper()
			return second(s.Receipts.Pending(t.Context()))
		})},
	})
}
