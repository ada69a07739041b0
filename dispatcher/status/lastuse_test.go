package status

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
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
		configMap, err := published.EncodeLastUses(f.cluster.Namespace, shard, published.LastUses{})
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, f.cluster.Create(t.Context(), configMap))
	}
}

// use lets Redis know of the uses of a key.
func (f *lastUseFixture) use(t *testing.T, keyID, merchantID string, uses published.DigestUses) {
	t.Helper()
	f.Index.Keys[keyID] = merchantID
	dispatchertest.Must(t, f.Redis(t).Set(t.Context(), storetest.BucketTag(session.MerchantBucket(merchantID))+"used:"+keyID, string(uses), 0).Err())
}

// publish lets a reporter do one round.
func (f *lastUseFixture) publish(t *testing.T, r *Reporter) {
	t.Helper()
	if more, err := r.publishLastUses(t.Context()); more || err != nil {
		t.Fatal(more, err)
	}
}

// published returns what is published of all keys.
func (f *lastUseFixture) published(t *testing.T) map[string]published.DigestUses {
	t.Helper()
	all := map[string]published.DigestUses{}
	for shard := range published.LastUseShards {
		uses, err := published.DecodeLastUses(f.configMap(t, shard))
		dispatchertest.Must(t, err)
		maps.Copy(all, uses.Keys)
	}
	return all
}

func (f *lastUseFixture) configMap(t *testing.T, shard int) *corev1.ConfigMap {
	t.Helper()
	configMap := new(corev1.ConfigMap)
	dispatchertest.Must(t, f.cluster.Get(t.Context(), client.ObjectKey{Namespace: f.cluster.Namespace, Name: published.LastUseName(shard)}, configMap))
	return configMap
}

// shard returns what is published of the shard that has the key, and its version.
func (f *lastUseFixture) shard(t *testing.T, keyID string) (uses published.LastUses, version string) {
	t.Helper()
	configMap := f.configMap(t, published.LastUseShard(keyID))
	uses, err := published.DecodeLastUses(configMap)
	dispatchertest.Must(t, err)
	return uses, configMap.ResourceVersion
}

func TestPublishLastUses_Steps(t *testing.T) {
	f := newLastUseFixture(t)
	coffee, books := dispatchertest.NewMerchantID(3), dispatchertest.NewMerchantID(60)
	f.use(t, "aaaaaaaaaaaa", coffee, "00000001 1800000000")
	f.use(t, "bbbbbbbbbbbb", books, "00000002 1800000001 00000001 1800000000")
	f.Index.Keys["cccccccccccc"] = books // never used
	if _, err := f.first.publishLastUses(t.Context()); err != nil {
		t.Fatalf("without the ConfigMaps: %v", err)
	}
	f.operatorRuns(t)
	want := map[string]published.DigestUses{
		"aaaaaaaaaaaa": "00000001 1800000000", "bbbbbbbbbbbb": "00000002 1800000001 00000001 1800000000", "cccccccccccc": "",
	}
	expect := func(desc string, r *Reporter) {
		t.Helper()
		f.publish(t, r)
		if diff := cmp.Diff(want, f.published(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", desc, diff)
		}
	}
	expect("the first uses", f.first)

	_, version := f.shard(t, "aaaaaaaaaaaa")
	f.use(t, "aaaaaaaaaaaa", coffee, "00000001 1800000599")
	expect("a use within the step", f.first)
	expect("another reporter", f.another(t))
	if _, now := f.shard(t, "aaaaaaaaaaaa"); now != version {
		t.Error("a use within the step was written")
	}

	f.use(t, "aaaaaaaaaaaa", coffee, "00000001 1800000600")
	want["aaaaaaaaaaaa"] = "00000001 1800000600"
	other := f.another(t)
	expect("a use after the step", f.first)
	expect("the same by another reporter", other)

	f.use(t, "aaaaaaaaaaaa", coffee, "00000009 1800000601")
	want["aaaaaaaaaaaa"] = "00000009 1800000601 00000001 1800000600"
	expect("the first use of a new key, and that of the old one, which Redis has lost", f.first)

	delete(f.Index.Keys, "aaaaaaaaaaaa")
	delete(want, "aaaaaaaaaaaa")
	expect("a key that is gone", f.first)

	f.use(t, "bbbbbbbbbbbb", books, "00000002 1800007200")
	want["bbbbbbbbbbbb"] = "00000002 1800007200 00000001 1800000000"
	expect("a use seen by the other reporter", other)
	f.use(t, "bbbbbbbbbbbb", books, "00000002 1800014400")
	want["bbbbbbbbbbbb"] = "00000002 1800014400 00000001 1800000000"
	expect("a use seen by the first one, which must not write over what the other wrote", f.first)
}

// Without new uses it is published every ten minutes that the uses were read, once by all reporters together. A shard without keys is not
// written.
func TestPublishLastUses_ReadTime(t *testing.T) {
	f := newLastUseFixture(t)
	f.operatorRuns(t)
	const keyID = "aaaaaaaaaaaa"
	coffee := dispatchertest.NewMerchantID(3)
	f.use(t, keyID, coffee, "00000001 1800000000")
	empty := (published.LastUseShard(keyID) + 1) % published.LastUseShards
	before := f.configMap(t, empty).ResourceVersion
	f.publish(t, f.first)
	uses, version := f.shard(t, keyID)
	if age := time.Since(uses.ReadTime); age.Abs() > time.Minute || uses.RecordingSince.Before(uses.ReadTime) {
		t.Errorf("read %s ago, recording since %s", age, uses.RecordingSince)
	}
	f.publish(t, f.first)
	if _, now := f.shard(t, keyID); now != version {
		t.Error("it is written again at once")
	}

	// As if the last read were ten minutes ago. The same in Redis, so nothing was lost.
	uses.ReadTime = uses.ReadTime.Add(-published.LastUseStep)
	uses.RecordingSince = uses.RecordingSince.Add(-published.LastUseStep)
	old, err := published.EncodeLastUses(f.cluster.Namespace, published.LastUseShard(keyID), uses)
	dispatchertest.Must(t, err)
	dispatchertest.Must(t, f.cluster.Update(t.Context(), old))
	f.publish(t, f.another(t))
	uses, version = f.shard(t, keyID)
	if age := time.Since(uses.ReadTime); age.Abs() > time.Minute {
		t.Errorf("after ten minutes: read %s ago", age)
	}
	f.publish(t, f.another(t))
	if _, now := f.shard(t, keyID); now != version {
		t.Error("another reporter writes the same again")
	}
	if now := f.configMap(t, empty).ResourceVersion; now != before {
		t.Error("a shard without keys was written")
	}
}

// What is published stays, and says since when uses may be missing: neither a flushed Redis nor one that was put back looks like silence, also
// to a reporter that starts then.
func TestPublishLastUses_RedisLosesUses(t *testing.T) {
	const keyID = "aaaaaaaaaaaa"
	for name, reader := range map[string]func(*testing.T, *lastUseFixture) *Reporter{
		"the same reporter": func(_ *testing.T, f *lastUseFixture) *Reporter { return f.first },
		"another reporter":  func(t *testing.T, f *lastUseFixture) *Reporter { t.Helper(); return f.another(t) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newLastUseFixture(t)
			f.operatorRuns(t)
			coffee := dispatchertest.NewMerchantID(3)
			f.use(t, keyID, coffee, "00000001 1800000000")
			f.publish(t, f.first)
			c := f.Redis(t)
			for bucket := range session.Buckets { // uses have been recorded for long
				key := storetest.BucketTag(session.Bucket(bucket)) + "uses"
				_, read, _ := strings.Cut(c.Get(t.Context(), key).Val(), " ")
				dispatchertest.Must(t, c.Set(t.Context(), key, "1700000000000 "+read, 0).Err())
			}
			f.publish(t, f.first)
			before, _ := f.shard(t, keyID)
			if before.RecordingSince.Unix() != 1_700_000_601 {
				t.Fatalf("recording since %s", before.RecordingSince)
			}

			dispatchertest.Must(t, c.FlushAll(t.Context()).Err())
			f.publish(t, reader(t, f))
			after, _ := f.shard(t, keyID)
			if after.RecordingSince.Before(before.ReadTime) || after.Keys[keyID] != "00000001 1800000000" {
				t.Errorf("after a flush: %+v", after)
			}

			// One bucket is of an older copy.
			last := storetest.BucketTag(session.Buckets-1) + "uses"
			dispatchertest.Must(t, c.Set(t.Context(), last, "1700000000000 1700000000000", 0).Err())
			f.publish(t, reader(t, f))
			if again, _ := f.shard(t, keyID); again.RecordingSince.Before(after.RecordingSince) {
				t.Errorf("after an older copy: recording since %s, before since %s", again.RecordingSince, after.RecordingSince)
			}
		})
	}
}

// A frozen watch may miss keys: then it is not published that the uses were read.
func TestPublishLastUses_FrozenWatch(t *testing.T) {
	f := newLastUseFixture(t)
	f.operatorRuns(t)
	const keyID = "aaaaaaaaaaaa"
	f.use(t, keyID, dispatchertest.NewMerchantID(3), "00000001 1800000000")
	f.Index.SetAge(endpoints.MaxAge + time.Second)
	f.publish(t, f.first)
	if uses, _ := f.shard(t, keyID); !uses.ReadTime.IsZero() {
		t.Errorf("with frozen watches: %+v", uses)
	}
	f.Index.SetAge(0)
	f.publish(t, f.first)
	if uses, _ := f.shard(t, keyID); uses.ReadTime.IsZero() || uses.Keys[keyID] == "" {
		t.Errorf("when all works again: %+v", uses)
	}
}

func TestPublishLastUses_DamagedAndNewer(t *testing.T) {
	f := newLastUseFixture(t)
	f.operatorRuns(t)
	const keyID = "aaaaaaaaaaaa"
	shard := published.LastUseShard(keyID)
	spoil := func(text string) {
		configMap := f.configMap(t, shard)
		configMap.Data = map[string]string{"uses.json": text}
		dispatchertest.Must(t, f.cluster.Update(t.Context(), configMap))
	}
	f.use(t, keyID, dispatchertest.NewMerchantID(3), "00000001 1800000000")
	const newer = `{"version":2}`
	spoil(newer)
	if _, err := f.first.publishLastUses(t.Context()); err != nil || f.configMap(t, shard).Data["uses.json"] != newer {
		t.Errorf("one of a newer version was changed: %v", err)
	}
	spoil("{")
	f.publish(t, f.another(t))
	if uses, _ := f.shard(t, keyID); uses.Keys[keyID] != "00000001 1800000000" {
		t.Errorf("a damaged one became %v", uses)
	}
}
