package dispatcher

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// lastUseFixture is a dispatcher that publishes into a namespace of a real API server, as often as a test says.
type lastUseFixture struct {
	fixture
	cluster cluster
	first   *dispatcher
	clock   time.Time
}

func newLastUseFixture(t *testing.T) *lastUseFixture {
	t.Helper()
	f := &lastUseFixture{fixture: newFixture(t), cluster: newCluster(t), clock: time.Now()}
	f.index.keys = map[string]string{}
	f.first = f.another(t)
	return f
}

// another returns another dispatcher of the same cluster.
func (f *lastUseFixture) another(t *testing.T) *dispatcher {
	t.Helper()
	d := f.fixture.dispatcher(t)
	d.now = func() time.Time { return f.clock }
	d.prepare()
	reporter, err := newKubeReporter(sharedConfig, "test-1", f.cluster.namespace)
	must(t, err)
	d.reporter = reporter
	return d
}

// operatorRuns creates what the operator creates.
func (f *lastUseFixture) operatorRuns(t *testing.T) {
	t.Helper()
	for shard := range published.LastUseShards {
		configMap, err := published.EncodeLastUses(f.cluster.namespace, shard, nil)
		must(t, err)
		must(t, f.cluster.Create(t.Context(), configMap))
	}
}

// use lets Redis know of a use of the key.
func (f *lastUseFixture) use(t *testing.T, keyID, merchantID string, at time.Time) {
	t.Helper()
	f.index.keys[keyID] = merchantID
	key := tag(session.BucketOf(merchantID)) + "used:" + keyID
	must(t, f.redis(t).Set(t.Context(), key, at.UnixMilli(), 0).Err())
}

// publish lets a dispatcher do one round, and returns what is published by key id.
func (f *lastUseFixture) publish(t *testing.T, d *dispatcher) map[string]time.Time {
	t.Helper()
	if more, err := d.publishLastUses(t.Context()); more || err != nil {
		t.Fatal(more, err)
	}
	all := map[string]time.Time{}
	for shard := range published.LastUseShards {
		uses, err := published.DecodeLastUses(f.configMap(t, shard))
		must(t, err)
		maps.Copy(all, uses)
	}
	return all
}

func (f *lastUseFixture) configMap(t *testing.T, shard int) *corev1.ConfigMap {
	t.Helper()
	configMap := new(corev1.ConfigMap)
	must(t, f.cluster.Get(t.Context(), client.ObjectKey{Namespace: f.cluster.namespace, Name: published.LastUseName(shard)}, configMap))
	return configMap
}

func TestLastUsesArePublishedInSteps(t *testing.T) {
	f := newLastUseFixture(t)
	coffee, books := newMerchantID(3), newMerchantID(60)
	used := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.use(t, "aaaaaaaaaaaa", coffee, used)
	f.use(t, "bbbbbbbbbbbb", books, used.Add(time.Second))
	f.index.keys["cccccccccccc"] = books // never used
	if _, err := f.first.publishLastUses(t.Context()); err != nil {
		t.Fatalf("without the ConfigMaps: %v", err)
	}
	f.operatorRuns(t)
	want := map[string]time.Time{"aaaaaaaaaaaa": used, "bbbbbbbbbbbb": used.Add(time.Second)}
	expect := func(desc string, d *dispatcher) {
		t.Helper()
		if diff := cmp.Diff(want, f.publish(t, d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", desc, diff)
		}
	}
	expect("the first uses", f.first)

	version := f.configMap(t, published.LastUseShard("aaaaaaaaaaaa")).ResourceVersion
	f.use(t, "aaaaaaaaaaaa", coffee, used.Add(published.LastUseStep-time.Second))
	expect("a use within the step", f.first)
	expect("another dispatcher", f.another(t))
	if now := f.configMap(t, published.LastUseShard("aaaaaaaaaaaa")).ResourceVersion; now != version {
		t.Error("a use within the step was written")
	}

	f.use(t, "aaaaaaaaaaaa", coffee, used.Add(published.LastUseStep))
	want["aaaaaaaaaaaa"] = used.Add(published.LastUseStep)
	other := f.another(t)
	expect("a use after the step", f.first)
	expect("the same by another dispatcher", other)

	delete(f.index.keys, "aaaaaaaaaaaa")
	delete(want, "aaaaaaaaaaaa")
	expect("a key that is gone", f.first)

	f.use(t, "bbbbbbbbbbbb", books, used.Add(3*time.Hour))
	want["bbbbbbbbbbbb"] = used.Add(3 * time.Hour)
	expect("a use seen by the other dispatcher", other)
	f.use(t, "bbbbbbbbbbbb", books, used.Add(5*time.Hour))
	want["bbbbbbbbbbbb"] = used.Add(5 * time.Hour)
	expect("a use seen by the first one, which must not write over what the other wrote", f.first)
}

func TestDamagedLastUsesAreReplacedAndNewerOnesLeft(t *testing.T) {
	f := newLastUseFixture(t)
	f.operatorRuns(t)
	const keyID = "aaaaaaaaaaaa"
	shard := published.LastUseShard(keyID)
	spoil := func(text string) {
		configMap := f.configMap(t, shard)
		configMap.Data = map[string]string{"uses.json": text}
		must(t, f.cluster.Update(t.Context(), configMap))
	}
	used := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.use(t, keyID, newMerchantID(3), used)
	const newer = `{"version":2}`
	spoil(newer)
	if _, err := f.first.publishLastUses(t.Context()); err != nil || f.configMap(t, shard).Data["uses.json"] != newer {
		t.Errorf("one of a newer version was changed: %v", err)
	}
	spoil("{")
	if got := f.publish(t, f.another(t)); !got[keyID].Equal(used) {
		t.Errorf("a damaged one became %v", got)
	}
}
