package status

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// lastUseFixture is a reporter that publishes into a namespace of a real API server, as often as a test says.
type lastUseFixture struct {
	testFixture
	cluster dispatchertest.Cluster
	first   *Reporter
	clock   time.Time
}

func newLastUseFixture(t *testing.T) *lastUseFixture {
	t.Helper()
	f := &lastUseFixture{testFixture: newFixture(t), cluster: dispatchertest.NewCluster(t), clock: time.Now()}
	f.first = f.another(t)
	return f
}

// another returns another reporter of the same cluster.
func (f *lastUseFixture) another(t *testing.T) *Reporter {
	t.Helper()
	r := f.reporter()
	r.now = func() time.Time { return f.clock }
	writer, err := NewKubeWriter(dispatchertest.Config, "test-1", f.cluster.Namespace)
	dispatchertest.Must(t, err)
	r.writer = writer
	return r
}

// operatorRuns creates what the operator creates.
func (f *lastUseFixture) operatorRuns(t *testing.T) {
	t.Helper()
	for shard := range published.LastUseShards {
		configMap, err := published.EncodeLastUses(f.cluster.Namespace, shard, nil)
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, f.cluster.Create(t.Context(), configMap))
	}
}

// use lets Redis know of a use of the key.
func (f *lastUseFixture) use(t *testing.T, keyID, merchantID string, at time.Time) {
	t.Helper()
	f.Index.Keys[keyID] = merchantID
	key := storetest.TagOf(session.BucketOf(merchantID)) + "used:" + keyID
	dispatchertest.Must(t, f.Redis(t).Set(t.Context(), key, at.UnixMilli(), 0).Err())
}

// publish lets a reporter do one round, and returns what is published by key id.
func (f *lastUseFixture) publish(t *testing.T, r *Reporter) map[string]time.Time {
	t.Helper()
	if more, err := r.publishLastUses(t.Context()); more || err != nil {
		t.Fatal(more, err)
	}
	all := map[string]time.Time{}
	for shard := range published.LastUseShards {
		uses, err := published.DecodeLastUses(f.configMap(t, shard))
		dispatchertest.Must(t, err)
		maps.Copy(all, uses)
	}
	return all
}

func (f *lastUseFixture) configMap(t *testing.T, shard int) *corev1.ConfigMap {
	t.Helper()
	configMap := new(corev1.ConfigMap)
	dispatchertest.Must(t, f.cluster.Get(t.Context(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: published.LastUseName(shard)}, configMap))
	return configMap
}

func TestLastUsesArePublishedInSteps(t *testing.T) {
	f := newLastUseFixture(t)
	coffee, books := dispatchertest.NewMerchantID(3), dispatchertest.NewMerchantID(60)
	used := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.use(t, "aaaaaaaaaaaa", coffee, used)
	f.use(t, "bbbbbbbbbbbb", books, used.Add(time.Second))
	f.Index.Keys["cccccccccccc"] = books // never used
	if _, err := f.first.publishLastUses(t.Context()); err != nil {
		t.Fatalf("without the ConfigMaps: %v", err)
	}
	f.operatorRuns(t)
	want := map[string]time.Time{"aaaaaaaaaaaa": used, "bbbbbbbbbbbb": used.Add(time.Second)}
	expect := func(desc string, r *Reporter) {
		t.Helper()
		if diff := cmp.Diff(want, f.publish(t, r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", desc, diff)
		}
	}
	expect("the first uses", f.first)

	version := f.configMap(t, published.LastUseShard("aaaaaaaaaaaa")).ResourceVersion
	f.use(t, "aaaaaaaaaaaa", coffee, used.Add(published.LastUseStep-time.Second))
	expect("a use within the step", f.first)
	expect("another reporter", f.another(t))
	if now := f.configMap(t, published.LastUseShard("aaaaaaaaaaaa")).ResourceVersion; now != version {
		t.Error("a use within the step was written")
	}

	f.use(t, "aaaaaaaaaaaa", coffee, used.Add(published.LastUseStep))
	want["aaaaaaaaaaaa"] = used.Add(published.LastUseStep)
	other := f.another(t)
	expect("a use after the step", f.first)
	expect("the same by another reporter", other)

	delete(f.Index.Keys, "aaaaaaaaaaaa")
	delete(want, "aaaaaaaaaaaa")
	expect("a key that is gone", f.first)

	f.use(t, "bbbbbbbbbbbb", books, used.Add(3*time.Hour))
	want["bbbbbbbbbbbb"] = used.Add(3 * time.Hour)
	expect("a use seen by the other reporter", other)
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
		dispatchertest.Must(t, f.cluster.Update(t.Context(), configMap))
	}
	used := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.use(t, keyID, dispatchertest.NewMerchantID(3), used)
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
