package store_test

import (
	"strconv"
	"testing"
	"time"

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
	merchantOf     = storetest.MerchantOf
	newID          = storetest.ID
	idempotencyKey = storetest.IdempotencyKey
	rotationOf     = storetest.Rotation
	rotatedAt      = storetest.RotatedAt
	newSession     = storetest.NewSession
	mustCreate     = storetest.MustCreate
	newDigest      = storetest.Digest
	bucketTag      = storetest.Tag
	kindsOf        = storetest.Kinds
	bucketTagOf    = storetest.TagOf
	eventsOf       = storetest.Events
	startCluster   = storetest.StartCluster
	clientCommands = storetest.ClientCommands
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
