package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A relist of 10,000 keys that have all changed comes while Redis is away. The directory takes it in without waiting for one
// time-out after the other, and Redis gets all of the news when it is back.
func TestARelistOfManyKeysWhileRedisIsAway(t *testing.T) {
	const keys = 10_000
	server := redistest.Start(t)
	redis, err := store.Open(store.Options{
		URL: server.URL(), Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), SessionRetention: 72 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	overrides := newOverrideWriter(redis, publishedKeys{now: time.Now}, log, registry)
	index := directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: overrides, Now: time.Now})
	list := func(revision int64) (objects []any, records []published.KeyRecord) {
		for i := range keys {
			uid := types.UID(fmt.Sprintf("key-%d", i))
			record := published.KeyRecord{
				KeyID: published.ID(uid), MerchantID: published.ID(types.UID(fmt.Sprintf("merchant-%d", i%100))),
				Source:     published.Source{Namespace: "shops", Name: "till", UID: uid},
				Generation: revision, Revision: revision, State: v1alpha1.ApiKeyActive,
				Current:      published.Current{Digest: apikey.DigestOf(fmt.Sprint(uid, revision)), Prefix: "mk_live_", CreatedAt: time.UnixMilli(revision)},
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
	if len(overrides.pending) != keys || overrides.verifier.size() != keys {
		t.Fatalf("%d overrides and %d verifications are kept, want %d of each", len(overrides.pending), overrides.verifier.size(), keys)
	}
	server.Start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(overrides.pendingOverrides()) > 0 && ctx.Err() == nil {
		overrides.retryPending(ctx)
	}
	overrides.verifier.run(ctx)
	if len(overrides.pendingOverrides()) > 0 || overrides.verifier.size() > 0 {
		t.Errorf("%d overrides and %d verifications are left", len(overrides.pendingOverrides()), overrides.verifier.size())
	}
	for _, record := range records {
		stored, err := redis.Overrides(t.Context(), refOf(record))
		if err != nil || stored[0].Order != record.Order() || !stored[0].Accepts(record.Current.Digest, time.Now()) {
			t.Fatalf("stored %+v, %v, want what %+v says", stored, err, record)
		}
	}
}
