package store_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// shared is the redis-server of every test that does not harm its server. Tests keep apart by using
// merchants of their own.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

// patience is how long a test waits for what must come true. The machine may be busy.
const patience = 20 * time.Second

type services = storetest.Services

var (
	open           = storetest.New
	client         = storetest.Inspect
	merchant       = storetest.Merchant
	merchantIn     = storetest.MerchantIn
	newID          = storetest.ID
	idempotencyKey = storetest.IdempotencyKey
	newRotation    = storetest.Rotation
	rotatedAt      = storetest.RotatedAt
	newSession     = storetest.NewSession
	mustCreate     = storetest.MustCreate
	newDigest      = storetest.Digest
	merchantTag    = storetest.Tag
	must           = storetest.Must
	keyRef         = storetest.KeyRef
	operations     = storetest.Operations
	limited        = storetest.Limited
	payer          = storetest.Payer
	eventKinds     = storetest.Kinds
	bucketTag      = storetest.BucketTag
	sessionEvents  = storetest.Events
	startCluster   = storetest.StartCluster
	clientCommands = storetest.ClientCommands
	paid           = storetest.Paid
	failed         = storetest.Failed
	of             = storetest.Of
)

const slots = storetest.Slots

func millis(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

func second[T any](_ T, err error) error { return err }

// with returns a changed copy.
func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	await.Until(t, patience, what, condition)
}

// merchantKeys returns the keys of the merchant's bucket that match. Other merchants' keys of the same
// bucket are distinguished by what they hold: sessions by their owner, the rest by their name.
func merchantKeys(t testing.TB, asks admission.Request, pattern string) []string {
	t.Helper()
	c := client(t, shared)
	keys, err := c.Keys(t.Context(), merchantTag(asks.MerchantID)+pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(pattern, "session:") {
		return keys
	}
	var own []string
	for _, key := range keys {
		if owned(c, asks, key) {
			own = append(own, key)
		}
	}
	return own
}

// owned reports whether the session at the key is the merchant's.
func owned(c *goredis.Client, asks admission.Request, key string) bool {
	return strings.HasPrefix(c.HGet(context.Background(), key, "f").Val(), asks.MerchantID+"\t")
}

func newAccount(asks admission.Request) store.Account {
	return store.Account{MerchantID: asks.MerchantID, TestMode: asks.TestMode}
}

func inTestMode(a *admission.Request) { a.TestMode, a.KeyID, a.Digest = true, newID(), newDigest() }

// publicSession is what payers see of a session from newSession.
func publicSession(created session.Session) store.PublicSession {
	charge := created.Charge
	public := store.PublicSession{
		MerchantID: created.MerchantID, MerchantName: created.MerchantName, AmountCents: charge.AmountCents, Currency: "EUR",
		OrderRef: charge.OrderRef, Status: created.Status, ExpiresAt: created.ExpiresAt,
	}
	if charge.TaxCents != nil {
		public.TaxCents = *charge.TaxCents
	}
	if charge.TipCents != nil {
		public.TipCents = *charge.TipCents
	}
	return public
}

var sameSession = cmp.AllowUnexported(session.ID{})

func lasting(lifetime time.Duration) func(*store.NewSession) {
	return func(n *store.NewSession) { n.Lifetime = lifetime }
}

func short(n *store.NewSession) { n.Lifetime = 10 * time.Millisecond }

// due waits until a session's time is over by the clock of Redis.
func due(t testing.TB, s *services, created session.Session) {
	t.Helper()
	eventually(t, "the session's time is over", func() bool {
		now, err := s.Admit(t.Context(), merchant())
		if err != nil {
			t.Fatal(err)
		}
		return !now.Now.Before(created.ExpiresAt)
	})
}

// sweepAll sweeps until nothing is due, and returns the sum.
func sweepAll(t *testing.T, s *services, bucket session.Bucket, limit int) store.Swept {
	t.Helper()
	var sum store.Swept
	for range 1000 { // more than any test needs
		swept, err := s.Sweep(t.Context(), bucket, limit)
		must(t, err)
		sum.Expired, sum.Corrupt = sum.Expired+swept.Expired, sum.Corrupt+swept.Corrupt
		if !swept.More {
			return sum
		}
	}
	t.Fatal("the sweep does not come to an end")
	return sum
}

// pendingIn returns the sessions of the bucket that a sweep has not examined yet.
func pendingIn(t storetest.Checker, c *goredis.Client, bucket session.Bucket) []string {
	t.Helper()
	index := bucketTag(bucket) + "expiry"
	entries, err := c.ZRange(t.Context(), index, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, entry := range entries {
		if strings.Trim(entry, "0123456789") != "" {
			ids = append(ids, entry)
			continue
		}
		queue, err := c.LRange(t.Context(), index+":"+entry, 0, -1).Result()
		if err != nil || len(queue) == 0 {
			t.Fatal("the queue of lifetime", entry, "is empty:", err)
		}
		for _, key := range queue {
			ids = append(ids, strings.TrimPrefix(key, bucketTag(bucket)+"session:"))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// bank is the rail of most reports, and card is another one.
var bank, card = storetest.Bank, session.NewRail("system:serviceaccount:rails:card")

// rail is the account of a rail.
var rail = session.NewRail("system:serviceaccount:payments:card-network")

func by(rail session.Rail, p session.Payment) session.Payment {
	p.Rail = rail
	return p
}

func in(currency string, p session.Payment) session.Payment {
	p.Currency = currency
	return p
}

// holding is a hold of a payment for a minute.
func holding(rail session.Rail, ref string) store.Hold {
	return store.Hold{Rail: rail, Ref: ref, Duration: time.Minute}
}

func releasing(rail session.Rail, ref string) store.Hold { return store.Hold{Rail: rail, Ref: ref} }

func refunding(payment, refund string, cents int64) session.Refund {
	return session.Refund{Rail: rail, Ref: refund, PaymentRef: payment, AmountCents: cents}
}

// impatient is a store with a short timeout, for servers that do not answer.
func impatient(t testing.TB, url string) *services {
	t.Helper()
	return open(t, url, func(o *redis.Options) { o.Timeout = 200 * time.Millisecond })
}

// assertRecovers waits until the same store works again.
func assertRecovers(t *testing.T, s *services) {
	t.Helper()
	for name, operation := range operations {
		eventually(t, name+" works again", func() bool {
			_, err := operation(t.Context(), s, merchant())
			return err == nil
		})
	}
}

// follow starts a replica of the server and returns it when it follows.
func follow(t testing.TB, master *redistest.Server) *redistest.Server {
	t.Helper()
	_, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	followed(t, replica)
	return replica
}

func followed(t testing.TB, replica *redistest.Server) {
	t.Helper()
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// copied waits this long for so many replicas with each settlement.
func copied(replicas int, wait time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.Replicas, o.ReplicaTimeout = replicas, wait }
}

const shortly = 100 * time.Millisecond
