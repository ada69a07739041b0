package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// redisFixture records what was written, or fails.
type redisFixture struct {
	mu      sync.Mutex
	written []string
	tries   int
	failure error
	gone    string // a merchant whose server is unavailable
}

func (r *redisFixture) write(_ context.Context, override keystate.Override) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.failure != nil {
		return r.failure
	}
	if override.MerchantID == r.gone {
		return redis.ErrUnavailable
	}
	r.written = append(r.written, fmt.Sprintf("%s@%d accepts %d", override.KeyID, override.Order.Revision, len(override.Accepted)))
	return nil
}

// serversFixture names the server of each bucket.
type serversFixture func(session.Bucket) string

var oneServer = serversFixture(func(session.Bucket) string { return "" })

// ByServer is as of a redis.Client.
func (s serversFixture) ByServer(_ context.Context, buckets []session.Bucket) [][]session.Bucket {
	groups := map[string][]session.Bucket{}
	for _, bucket := range buckets {
		groups[s(bucket)] = append(groups[s(bucket)], bucket)
	}
	return slices.Collect(maps.Values(groups))
}

// ForEach is as of a redis.Client.
func (s serversFixture) ForEach(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error {
	var errs []error
	for _, group := range s.ByServer(ctx, buckets) {
		for _, bucket := range group {
			if err := do(ctx, bucket); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func newOverrideFixture() (*Overrides, *redisFixture, *strings.Builder) {
	stored, log := &redisFixture{}, &strings.Builder{}
	return &Overrides{
		write:    stored.write,
		servers:  oneServer,
		verifier: &recordVerifier{servers: oneServer, pending: map[keystate.Ref]unverified{}},
		log:      slog.New(slog.NewTextHandler(log, nil)),
		queues:   map[session.Bucket]*overrideQueue{},
	}, stored, log
}

// settle waits until the goroutines of an Overrides have written what they can.
func settle(t *testing.T, w *Overrides) {
	t.Helper()
	await.Until(t, time.Minute, "nothing is being written", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, queue := range w.queues {
			if queue.writing {
				return false
			}
		}
		return true
	})
}

func nobodyWaits() {}

func merchantRecord() published.MerchantRecord {
	return published.MerchantRecord{
		MerchantID: "merchant2345", Namespace: "shops", Name: "acme", DisplayName: "Acme", State: v1alpha1.MerchantActive, Currency: "EUR",
		RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
		Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
}

func revised(keyID string, revision int64) published.KeyRecord {
	return published.KeyRecord{
		MerchantID: "merchant2345", KeyID: keyID, Revision: revision,
		State: v1alpha1.ApiKeyActive, Current: published.Current{Digest: apikey.NewDigest(keyID)},
	}
}

// Changes reach Redis at once.
func TestOverrides_WrittenAtOnce(t *testing.T) {
	a, stored, _ := newOverrideFixture()
	a.KeyUpdated(revised("till", 2), nobodyWaits)
	settle(t, a)
	disabled := revised("till", 3)
	disabled.State = v1alpha1.ApiKeyDisabled
	a.KeyUpdated(disabled, nobodyWaits)
	settle(t, a)
	a.KeyRevoked(revised("till", 3))
	settle(t, a)
	if diff := cmp.Diff([]string{"till@2 accepts 1", "till@3 accepts 0", "till@3 accepts 0"}, stored.written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// Changes outlast an outage of Redis.
func TestOverrides_RedisOutage(t *testing.T) {
	a, stored, _ := newOverrideFixture()
	stored.failure = fmt.Errorf("%w: refused", redis.ErrUnavailable)
	a.KeyUpdated(revised("till", 2), nobodyWaits)
	settle(t, a)
	applied := 0
	for revision := range int64(1000) {
		a.KeyUpdated(revised("web", revision), func() { applied++ })
	}
	if applied != 1000 {
		t.Errorf("%d of 1000 changes are in force at this replica while Redis is away", applied)
	}
	a.KeyRevoked(revised("till", 2))
	settle(t, a)
	if stored.tries != 1 {
		t.Errorf("%d tries while Redis is away, want 1", stored.tries)
	}
	a.retry(t.Context())
	stored.failure = nil
	a.retry(t.Context())
	a.retry(t.Context())
	got := map[string]bool{}
	for _, text := range stored.written {
		got[text] = true
	}
	if diff := cmp.Diff(map[string]bool{"till@2 accepts 0": true, "web@999 accepts 1": true}, got); diff != "" || len(stored.written) != 2 {
		t.Errorf("written when Redis is back, %v: the newest of each key once (-want +got):\n%s", stored.written, diff)
	}
	a.KeyUpdated(revised("till", 3), nobodyWaits)
	settle(t, a)
	if len(stored.written) != 3 {
		t.Error("changes do not reach Redis at once again")
	}
}

// A change during an outage of Redis visits its own override only: the watch brings thousands, and each of them would
// walk through all before it.
func TestOverrides_OutageVisitsNoOtherOverride(t *testing.T) {
	w, stored, _ := newOverrideFixture()
	stored.failure = redis.ErrUnavailable
	w.KeyUpdated(revised("first", 1), nobodyWaits)
	settle(t, w)
	// Nobody waits for an override of a queue that has failed. Only a walk through all of them finds this one.
	visited := false
	queue := w.queues[session.MerchantBucket(merchantRecord().MerchantID)]
	first := newOverride(revised("first", 1))
	queue.newest[first.Ref] = queuedOverride{Override: first, written: func() { visited = true }}
	applied := 0
	for i := range 100 {
		w.KeyUpdated(revised(fmt.Sprint("till-", i), 1), func() { applied++ })
		w.KeyRevoked(revised(fmt.Sprint("web-", i), 1))
	}
	if applied != 100 || visited {
		t.Errorf("%d of 100 changes are in force; one walked through all that is pending: %t", applied, visited)
	}
}

// A change whose Redis server has failed with another bucket puts those in force that are being written in its own.
func TestOverrides_OutageOfAnotherBucketReleasesAll(t *testing.T) {
	w, _, _ := newOverrideFixture()
	goOn := make(chan struct{})
	gone, own := storetest.MerchantIn(0).MerchantID, storetest.MerchantIn(1).MerchantID
	w.write = func(_ context.Context, override keystate.Override) error {
		if override.MerchantID != gone {
			<-goOn
		}
		return redis.ErrUnavailable
	}
	change := func(merchant, keyID string, written func()) {
		record := revised(keyID, 1)
		record.MerchantID = merchant
		w.KeyUpdated(record, written)
	}
	applied := 0
	change(own, "till", func() { applied++ })
	failed := make(chan struct{})
	change(gone, "neighbour", func() { close(failed) })
	<-failed
	change(own, "web", func() { applied++ })
	if applied != 2 {
		t.Errorf("%d of 2 changes are in force while their server does not answer", applied)
	}
	close(goOn)
	settle(t, w)
	if applied != 2 {
		t.Errorf("%d calls for 2 changes", applied)
	}
}

// One primary of a Redis Cluster is gone, with 100 changed keys. A revocation at another one is written at once, and the changes of the gone one
// cost the watch one time-out.
func TestOverrides_OtherServerIsGone(t *testing.T) {
	a, stored, _ := newOverrideFixture()
	gone, neighbour := storetest.MerchantIn(0).MerchantID, storetest.MerchantIn(2).MerchantID
	victim := storetest.MerchantIn(1).MerchantID
	a.servers = serversFixture(func(bucket session.Bucket) string { return fmt.Sprint(bucket % 2) })
	stored.gone = gone
	for i := range 100 {
		record := revised(fmt.Sprint("till-", i), 2)
		record.MerchantID = gone
		a.KeyUpdated(record, nobodyWaits)
		settle(t, a)
	}
	record := revised("neighbour", 2)
	record.MerchantID = neighbour
	a.KeyUpdated(record, nobodyWaits)
	settle(t, a)
	if stored.tries != 1 {
		t.Errorf("%d tries at the server that is gone, want 1", stored.tries)
	}
	record = revised("victim", 2)
	record.MerchantID = victim
	a.KeyRevoked(record)
	settle(t, a)
	if diff := cmp.Diff([]string{"victim@2 accepts 0"}, stored.written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	// An override that had to wait is not behind the overrides of the other server either.
	stored.gone, stored.failure = "", redis.ErrUnavailable
	record.Revision = 3
	a.KeyRevoked(record)
	settle(t, a)
	stored.gone, stored.failure = gone, nil
	a.retry(t.Context())
	if !slices.Contains(stored.written, "victim@3 accepts 0") {
		t.Errorf("written: %v", stored.written)
	}
}

// An unreadable override is logged and not retried.
func TestOverrides_Unreadable(t *testing.T) {
	a, stored, log := newOverrideFixture()
	stored.failure = errors.Join(redis.ErrCorrupt)
	a.KeyUpdated(revised("till", 2), nobodyWaits)
	settle(t, a)
	a.retry(t.Context())
	if stored.tries != 1 || !strings.Contains(log.String(), "keyID=till") {
		t.Errorf("%d tries, want 1; logged %q", stored.tries, log)
	}
}

// A relist of 10,000 changed keys arrives while Redis is unavailable. The directory stores it without one timeout per key, and
// Redis gets all overrides when it is back.
func TestOverrides_RelistDuringOutage(t *testing.T) {
	const keys = 10_000
	server := redistest.Start(t)
	sessions := storetest.New(t, server.URL(), func(o *redis.Options) { o.Timeout = 300 * time.Millisecond })
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	overrides := NewOverrides(sessions.Keys, sessions.Client, Published{}, log, registry)
	index := directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: overrides, Now: time.Now})
	list := func(revision int64) (objects []any, records []published.KeyRecord) {
		for i := range keys {
			uid := types.UID(fmt.Sprintf("key-%d", i))
			record := published.KeyRecord{
				KeyID: published.ID(uid), MerchantID: published.ID(types.UID(fmt.Sprintf("merchant-%d", i%100))),
				Source:     published.Source{Namespace: "shops", Name: "till", UID: uid},
				Generation: revision, Revision: revision, State: v1alpha1.ApiKeyActive,
				Current:      published.Current{Digest: apikey.NewDigest(fmt.Sprint(uid, revision)), Prefix: "mk_live_", CreatedAt: time.UnixMilli(revision)},
				LastRotation: published.RotationEvent{Time: time.UnixMilli(revision), Cause: v1alpha1.RotationTrigger},
			}
			secret, err := published.EncodeKey("credentials", record)
			if err != nil {
				t.Fatal(err)
			}
			objects, records = append(objects, secret), append(records, record)
		}
		return objects, records
	}
	first, _ := list(1)
	if err := index.Informer("key").Replace(first, "1"); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	changed, records := list(2)
	var relist sync.WaitGroup
	relist.Go(func() { _ = index.Informer("key").Replace(changed, "2") })
	for range 1000 { // requests go on during the relist
		_, _ = index.Identify("a key of nobody, as long as one of ours", time.Now())
	}
	relist.Wait() // 10,000 timeouts would outlast the test
	settle(t, overrides)
	if overrides.size() != keys || overrides.verifier.size() != 0 {
		t.Fatalf("%d overrides and %d verifications of the records that they replace are kept, want %d and none", overrides.size(), overrides.verifier.size(), keys)
	}
	server.Start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for overrides.size() > 0 && ctx.Err() == nil {
		overrides.retry(ctx)
	}
	overrides.verifier.run(ctx)
	if overrides.size() > 0 || overrides.verifier.size() > 0 {
		t.Errorf("%d overrides and %d verifications are left", overrides.size(), overrides.verifier.size())
	}
	for _, record := range records {
		stored, _, err := sessions.Keys.Overrides(t.Context(), newKeyRef(record))
		if err != nil || stored[0].Order != record.Order() || !stored[0].Accepts(record.Current.Digest, time.Now()) {
			t.Fatalf("stored %+v, %v, want what %+v says", stored, err, record)
		}
	}
}

// Redis is slow. A key that is disabled is refused at once, behind 100 others that have changed; one that is enabled again, or has a new digest, is
// accepted with its override.
func TestOverrides_SlowRedis(t *testing.T) {
	w, _, _ := newOverrideFixture()
	goOn := make(chan struct{})
	w.write = func(context.Context, keystate.Override) error { <-goOn; return nil }
	index := directory.New(directory.Options{Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), KeyHandler: w, Now: time.Now})
	merchant, err := published.EncodeMerchant("credentials", merchantRecord())
	if err != nil {
		t.Fatal(err)
	}
	_ = index.Informer("merchant").Add(merchant)
	watch := func(record published.KeyRecord) {
		secret, err := published.EncodeKey("credentials", record)
		if err != nil {
			t.Fatal(err)
		}
		_ = index.Informer("key").Update(secret)
	}
	live := func(key apikey.Key) bool {
		principal, err := index.Identify(key.Reveal(), time.Now())
		return err == nil && principal.Live
	}
	issue := func(uid string) (apikey.Key, published.KeyRecord) {
		key, err := apikey.New(published.ID(types.UID(uid)))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		return key, published.KeyRecord{
			KeyID: key.ID(), MerchantID: "merchant2345", Source: published.Source{Namespace: "shops", Name: uid, UID: types.UID(uid)},
			Generation: 1, Revision: 1, State: v1alpha1.ApiKeyActive,
			Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: at},
			LastRotation: published.RotationEvent{Time: at, Cause: v1alpha1.RotationTrigger},
		}
	}
	left, leaver := issue("leaver")
	back, enabled := issue("enabled")
	old, rotated := issue("rotated")
	next, err := apikey.New(rotated.KeyID)
	if err != nil {
		t.Fatal(err)
	}
	enabled.State = v1alpha1.ApiKeyDisabled
	var others []published.KeyRecord
	for i := range 100 {
		_, record := issue(fmt.Sprint("other-", i))
		others = append(others, record)
	}
	for _, record := range append(others, leaver, enabled, rotated) {
		watch(record)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, record := range others {
			record.Revision++
			watch(record)
		}
		leaver.State, leaver.Revision = v1alpha1.ApiKeyDisabled, 2
		watch(leaver)
		enabled.State, enabled.Revision = v1alpha1.ApiKeyActive, 2
		watch(enabled)
		watch(rotated.Rotated(published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: time.Now()}, v1alpha1.RotationTrigger, 0, time.Now()))
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the watch waits for Redis")
	}
	if live(left) || live(old) {
		t.Errorf("while Redis is slow: the disabled key is accepted: %t, the replaced one: %t", live(left), live(old))
	}
	if live(back) || live(next) {
		t.Errorf("before its override is written: the enabled key is accepted: %t, the new one: %t", live(back), live(next))
	}
	close(goOn)
	settle(t, w)
	<-done
	if live(left) || live(old) || !live(back) || !live(next) {
		t.Errorf("in the end: disabled %t, replaced %t, enabled %t, new %t", live(left), live(old), live(back), live(next))
	}
}

// A full Redis refuses what accepts a key, and takes what revokes one: that waits for nothing, also when all is tried again.
func TestOverrides_FullRedis(t *testing.T) {
	w, stored, _ := newOverrideFixture()
	full := fmt.Errorf("%w: %w", redis.ErrUnavailable, redis.ErrFull)
	w.write = func(ctx context.Context, override keystate.Override) error {
		if full != nil && len(override.Accepted) > 0 {
			return full
		}
		return stored.write(ctx, override)
	}
	applied := false
	other := revised("other", 2)
	other.MerchantID = storetest.MerchantIn(session.MerchantBucket(other.MerchantID) + 1).MerchantID
	for _, accepted := range []published.KeyRecord{revised("till", 2), other} {
		w.KeyUpdated(accepted, func() { applied = true })
		settle(t, w)
	}
	if !applied {
		t.Error("the record is not in force at this replica")
	}
	w.retry(t.Context())
	w.KeyRevoked(revised("leaver", 2))
	settle(t, w)
	if diff := cmp.Diff([]string{"leaver@2 accepts 0"}, stored.written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	full = nil
	w.retry(t.Context())
	if w.size() != 0 || len(stored.written) != 3 {
		t.Errorf("with room again: %d wait; written are %q", w.size(), stored.written)
	}
}

// What revokes a key is written before all that waits.
func TestOverrides_RevocationsFirst(t *testing.T) {
	w, stored, _ := newOverrideFixture()
	goOn := make(chan struct{})
	w.write = func(ctx context.Context, override keystate.Override) error {
		<-goOn
		return stored.write(ctx, override)
	}
	for i := range 10 * maxOverrideWrites {
		w.KeyUpdated(revised(fmt.Sprint("till-", i), 2), nobodyWaits)
	}
	w.KeyRevoked(revised("leaver", 2))
	close(goOn)
	settle(t, w)
	if place := slices.Index(stored.written, "leaver@2 accepts 0"); place < 0 || place >= 2*maxOverrideWrites {
		t.Errorf("the revocation is written as number %d of %d", place+1, len(stored.written))
	}
}

// An override is for all replicas: one whose clock is an hour ahead must not end an overlap or a key for the others.
func TestOverrides_ClockAhead(t *testing.T) {
	client := storetest.New(t, redistest.Start(t).URL())
	now := time.Now()
	w := NewOverrides(client.Keys, client.Client, Published{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	record := revised("abcdefgh2345", 2)
	expires := now.Add(30 * time.Minute)
	record.ExpiresAt = &expires
	record.Previous = []published.Previous{{Digest: apikey.NewDigest("replaced"), ValidUntil: now.Add(20 * time.Minute)}}
	w.KeyUpdated(record, nobodyWaits)
	settle(t, w)
	for _, row := range []struct {
		name string
		key  string
	}{
		{"the current key, which expires in 30 minutes", "abcdefgh2345"},
		{"the replaced key, whose overlap ends in 20 minutes", "replaced"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := client.Admit(t.Context(), admission.Request{
				MerchantID: record.MerchantID, KeyID: record.KeyID, Digest: apikey.NewDigest(row.key), Order: record.Order(), Accepted: true,
				Limit: ratelimit.Policy{RequestsPerSecond: 10, Burst: 10},
			})
			if err != nil {
				t.Errorf("another replica, whose clock is right: %v", err)
			}
		})
	}
}

// To end a key, some write a time long ago. A zero in an override means no end, so no end becomes one.
func TestOverrides_ExpiredLongAgo(t *testing.T) {
	client := storetest.New(t, redistest.Start(t).URL())
	w := NewOverrides(client.Keys, client.Client, Published{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	for name, expires := range map[string]time.Time{
		"year 1": {}, "1960": time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), "1970": time.Unix(0, 0), "a second later": time.Unix(1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			record := revised(name, 2)
			record.ExpiresAt = &expires
			w.KeyUpdated(record, nobodyWaits)
			settle(t, w)
			_, err := client.Admit(t.Context(), admission.Request{
				MerchantID: record.MerchantID, KeyID: record.KeyID, Digest: record.Current.Digest, Accepted: true,
				Limit: ratelimit.Policy{RequestsPerSecond: 10, Burst: 10},
			})
			if !errors.Is(err, admission.ErrKeyRejected) {
				t.Errorf("a replica that knows an older record answers %v", err)
			}
		})
	}
}

// A record that was restored is older than the override of the newest key, which so decides, whatever the record says. The operator writes one
// that is newer and has no key: then replicas refuse the newest key too, also those whose watch is frozen.
func TestOverrides_WithdrawnRecord(t *testing.T) {
	client := storetest.New(t, redistest.Start(t).URL())
	w := NewOverrides(client.Keys, client.Client, Published{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	index := directory.New(directory.Options{Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), KeyHandler: w, Now: time.Now})
	merchant, err := published.EncodeMerchant("credentials", merchantRecord())
	if err != nil {
		t.Fatal(err)
	}
	_ = index.Informer("merchant").Add(merchant)
	presented, at := map[int64]string{}, time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	issue := func(generation int64) published.KeyRecord {
		key, err := apikey.New("abcdefgh2345")
		if err != nil {
			t.Fatal(err)
		}
		presented[generation] = key.Reveal()
		issued := at.Add(time.Duration(generation) * time.Minute)
		return published.KeyRecord{
			KeyID: key.ID(), MerchantID: "merchant2345", Source: published.Source{Namespace: "shops", Name: "till", UID: "till"},
			Generation: generation, Revision: issued.UnixMilli(), State: v1alpha1.ApiKeyActive,
			Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: issued},
			LastRotation: published.RotationEvent{Time: issued, Cause: v1alpha1.RotationTrigger},
		}
	}
	watch := func(record published.KeyRecord) {
		secret, err := published.EncodeKey("credentials", record)
		if err != nil {
			t.Fatal(err)
		}
		_ = index.Informer("key").Update(secret)
		settle(t, w)
	}
	first, newest := issue(1), issue(2)
	frozen := admission.Request{
		MerchantID: newest.MerchantID, KeyID: newest.KeyID, Digest: newest.Current.Digest, Order: newest.Order(), Accepted: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 100, Burst: 100},
	}
	admitted := func(generation int64) bool {
		principal, err := index.Identify(presented[generation], time.Now())
		if err != nil {
			return false
		}
		request := frozen
		request.Digest, request.Order, request.Accepted, request.Until = principal.Digest, principal.Order, principal.Accepted, principal.Until
		_, err = client.Admit(t.Context(), request)
		return err == nil
	}
	watch(first)
	watch(newest)
	restored := first
	restored.Superseded, restored.NewerIssued, restored.State, restored.Revision = true, newest.Order().Issued, v1alpha1.ApiKeyDisabled, first.Revision+1
	watch(restored)
	if admitted(1) || !admitted(2) {
		t.Fatalf("the restored key is accepted: %t, the newest: %t", admitted(1), admitted(2))
	}
	withdrawn := restored
	withdrawn.Current, withdrawn.Revision = published.Placeholder(newest.Current.CreatedAt.Add(time.Millisecond)), time.Now().UnixMilli()
	watch(withdrawn)
	if admitted(1) || admitted(2) {
		t.Errorf("after it was withdrawn the restored key is accepted: %t, the newest: %t", admitted(1), admitted(2))
	}
	if _, err := client.Admit(t.Context(), frozen); !errors.Is(err, admission.ErrKeyRejected) {
		t.Errorf("a replica that has seen neither, about the newest key: %v", err)
	}
}
