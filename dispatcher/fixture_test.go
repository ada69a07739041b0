package dispatcher

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

// fixture is a Redis of its own, merchants with endpoints, and any number of dispatchers.
type fixture struct {
	server     *redistest.Server
	connection *redis.Client
	store      *store.Store
	outbox     *outbox.Outbox
	index      *fakeIndex
	reports    *recordingReporter
	log        *logtest.Buffer
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	server := redistest.Start(t)
	client := storetest.Client(t, server.URL())
	return fixture{server, client, storetest.Store(t, client), outbox.New(client), &fakeIndex{known: map[string]endpoints.Endpoint{}, lists: map[string]allowlist.List{}}, &recordingReporter{}, &logtest.Buffer{}}
}

// endpointAt returns the endpoint of a new merchant of the bucket.
func (f fixture) endpointAt(url string, bucket session.Bucket) endpoints.Endpoint {
	id := newMerchantID(bucket)
	endpoint := endpoints.Endpoint{
		State:        endpoints.Published,
		MerchantID:   id,
		MerchantName: "Acme Coffee",
		Merchant:     types.NamespacedName{Namespace: "shops", Name: "acme-" + id},
		UID:          types.UID("uid-" + id),
		URL:          url,
		Secrets:      []published.SigningSecret{signingSecret},
		Target:       "target of " + url,
	}
	f.index.put(endpoint)
	return endpoint
}

func newMerchantID(bucket session.Bucket) string {
	for {
		if id := strings.ToLower(rand.Text())[:12]; session.BucketOf(id) == bucket {
			return id
		}
	}
}

func admissionOf(merchantID string) store.Admission {
	return store.Admission{
		MerchantID: merchantID, KeyID: "till", Digest: apikey.DigestOf("key"), Live: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
}

func (f fixture) create(t *testing.T, merchantID string, change func(*store.NewSession)) session.Session {
	t.Helper()
	wanted := store.NewSession{
		MerchantName: "Acme Coffee", Charge: session.Charge{AmountCents: 1250, OrderRef: "1001"}, Lifetime: 15 * time.Minute,
	}
	if change != nil {
		change(&wanted)
	}
	_, created, err := f.store.CreateSession(t.Context(), admissionOf(merchantID), wanted)
	if err != nil {
		t.Fatal(err)
	}
	return created.Session
}

// event creates and cancels a session of the merchant, and returns the id of the event.
func (f fixture) event(t *testing.T, merchantID string) string {
	t.Helper()
	id := f.create(t, merchantID, nil).ID
	if _, _, err := f.store.Cancel(t.Context(), admissionOf(merchantID), id); err != nil {
		t.Fatal(err)
	}
	return endedEvent(id)
}

func endedEvent(id session.ID) string {
	return "evt_" + strings.TrimPrefix(id.String(), "ps_") + "_ended"
}

// dispatcher returns one that does not run yet.
func (f fixture) dispatcher(t *testing.T, change ...func(*Options)) *dispatcher {
	t.Helper()
	options := DefaultOptions()
	options.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond}
	options.ShutdownTimeout = patience
	options.Log = slog.New(slog.NewTextHandler(f.log, nil))
	for _, c := range change {
		c(&options)
	}
	client, err := delivery.New(delivery.Options{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &dispatcher{
		deliverer: &deliverer{
			options: options, outbox: f.outbox, sender: client, metrics: newMetrics(prometheus.NewRegistry()), now: time.Now,
			log: loop.NewLog(options.Log), healthChanged: loop.NewSignal(),
		},
		store: f.store, index: f.index, reporter: f.reports, rotations: newRotations(), changes: newChanges(), identity: "test",
	}
}

// start runs a dispatcher until stop is called, which returns what run returned, or the test ends.
func start(t *testing.T, d *dispatcher) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, patience, what, holds)
}

// awaitBacklog waits until Redis holds no events but these.
func (f fixture) awaitBacklog(t *testing.T, bucket session.Bucket, want outbox.Backlog) {
	t.Helper()
	eventually(t, "the backlog is as wanted", func() bool {
		backlog, err := f.outbox.Backlog(t.Context(), bucket)
		backlog.Overdue = 0
		return err == nil && backlog == want
	})
}

func (f fixture) deadLetters(t *testing.T) []outbox.DeadLetter {
	t.Helper()
	letters, err := f.outbox.DeadLetters(t.Context(), outbox.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

// redis is for looking at what is there, and for letting time pass.
func (f fixture) redis(t *testing.T) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: f.server.Addr(), ReadTimeout: patience, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var tag = storetest.TagOf

// queued returns what stands in the queue of a bucket for each event: merchant id, time, event id, and holder and token of a lease.
func (f fixture) queued(t *testing.T, bucket session.Bucket) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, member := range f.redis(t).ZRange(t.Context(), tag(bucket)+"queue", 0, -1).Val() {
		words := strings.Split(member, ":")
		all[words[2]] = words
	}
	return all
}

func (f fixture) leasedTo(t *testing.T, bucket session.Bucket, id string) (somebody bool) {
	t.Helper()
	return len(f.queued(t, bucket)[id]) > 3
}

// makeDue makes an event due, or ends its lease.
func (f fixture) makeDue(t *testing.T, bucket session.Bucket, id string) {
	t.Helper()
	words := f.queued(t, bucket)[id]
	if words == nil {
		t.Fatal("not in the queue:", id)
	}
	before := strings.Join(words, ":")
	words[1] = "0000000000001"
	_, err := f.redis(t).TxPipelined(t.Context(), func(together goredis.Pipeliner) error {
		together.ZRem(t.Context(), tag(bucket)+"queue", before)
		together.ZAdd(t.Context(), tag(bucket)+"queue", goredis.Z{Member: strings.Join(words, ":")})
		together.ZAdd(t.Context(), tag(bucket)+"due", goredis.Z{Score: 1, Member: words[0]})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
