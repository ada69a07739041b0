package directory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

func TestWatch(t *testing.T) {
	c := newClusterFixture(t)
	c.createMerchant(t, "acme")
	early, _ := c.createKey(t, "early", "acme")
	c.watch(t, sharedConfig)
	<-c.Synced()
	c.want(t, early, nil)

	late, secret := c.createKey(t, "late", "acme")
	c.eventually(t, late, nil)
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	record.State = v1alpha1.ApiKeyDisabled
	c.update(t, secret, record)
	c.eventually(t, late, ErrDisabled)
	c.deleteKey(t, secret)
	c.eventually(t, late, ErrUnknown)
	c.want(t, early, nil)

	if err := c.client.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), published.MerchantName(published.ID("acme")), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, early, ErrMerchantMissing)
}

// Only the operator can write the label's objects in the credentials namespace, but it may be shared
// with others by mistake.
func TestWatch_OtherObjects(t *testing.T) {
	c := newClusterFixture(t)
	c.createMerchant(t, "acme")
	key, secret := c.createKey(t, "till", "acme")
	c.watch(t, sharedConfig)
	c.eventually(t, key, nil)

	secret.Labels = nil
	if _, err := c.client.CoreV1().Secrets(c.namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, key, ErrUnknown)
}

func TestWatch_DeletedMeanwhile(t *testing.T) {
	c := newClusterFixture(t)
	c.createMerchant(t, "acme")
	gone, secret := c.createKey(t, "gone", "acme")
	kept, _ := c.createKey(t, "kept", "acme")
	stop := c.watch(t, sharedConfig)
	c.eventually(t, gone, nil)
	stop()

	c.deleteKey(t, secret)
	fresh, _ := c.createKey(t, "fresh", "acme")
	c.want(t, gone, nil) // it does not know it yet
	c.watch(t, sharedConfig)
	c.eventually(t, gone, ErrUnknown)
	c.eventually(t, fresh, nil)
	c.want(t, kept, nil)
}

func TestWatch_SkipsUndecodable(t *testing.T) {
	c := newClusterFixture(t)
	c.createMerchant(t, "acme")
	_, secret := c.createKey(t, "bad", "acme")
	secret.Data = nil
	if _, err := c.client.CoreV1().Secrets(c.namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	good, _ := c.createKey(t, "good", "acme")
	c.watch(t, sharedConfig)
	<-c.Synced()
	c.want(t, good, nil)
	checkMetrics(t, c.fixture, 1, 1)
}

func TestWatch_APIServerAway(t *testing.T) {
	c := newClusterFixture(t)
	c.createMerchant(t, "acme")
	old, secret := c.createKey(t, "old", "acme")
	proxy, proxied := proxyTo(t, sharedConfig)
	c.watch(t, proxied)
	c.eventually(t, old, nil)

	proxy.Cut()
	c.deleteKey(t, secret)
	fresh, _ := c.createKey(t, "fresh", "acme")
	c.want(t, old, nil)
	c.want(t, fresh, ErrUnknown)
	proxy.Restore()
	c.eventually(t, fresh, nil)
	c.eventually(t, old, ErrUnknown)
}

func TestSynced_APIServerAway(t *testing.T) {
	c := newClusterFixture(t)
	proxy, proxied := proxyTo(t, sharedConfig)
	proxy.FreezeWatches()
	proxy.Cut()
	c.watch(t, proxied)
	select {
	case <-c.Synced():
		t.Fatal("synced without an answer")
	default:
	}
	proxy.Restore()
	proxy.ThawWatches()
	select {
	case <-c.Synced():
	case <-time.After(patience):
		t.Fatal("never synced")
	}
}

func TestAge_OldestWatch(t *testing.T) {
	f := newFixture()
	later := func(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }
	wantAge := func(when string, want time.Duration) {
		t.Helper()
		if got := f.Age(); got != want {
			t.Errorf("%s: age %s, want %s", when, got, want)
		}
	}
	later(time.Minute)
	wantAge("never heard of anything", time.Minute)
	_ = f.keyInformer.Replace(nil, "1")
	wantAge("one of the lists", time.Minute)
	_ = f.merchantInformer.Replace(nil, "1")
	_ = f.Informer("tombstone").Replace(nil, "1")
	wantAge("all lists", 0)
	later(time.Hour)
	f.keyInformer.UpdateResourceVersion("2")
	wantAge("a bookmark of one watch", time.Hour)
	f.merchantInformer.UpdateResourceVersion("2")
	f.Informer("tombstone").UpdateResourceVersion("2")
	wantAge("a bookmark of each", 0)
}

// A merchant is deleted when its tombstone says so. Nothing else does: a merchant that is refused by mistake loses money.
func TestMerchantDeleted(t *testing.T) {
	id, other := published.ID("acme"), published.ID("books")
	tombstone := func(kind published.TombstoneKind, id string) *corev1.ConfigMap {
		configMap, err := published.EncodeTombstone(namespace, published.Tombstone{
			Kind: kind, ID: id, Source: published.Source{Namespace: "shops", Name: "acme", UID: "uid"}, EndedAt: now,
		})
		if err != nil {
			t.Fatal(err)
		}
		return configMap
	}
	withData := func(configMap *corev1.ConfigMap, data string) *corev1.ConfigMap {
		configMap.Data["tombstone.json"] = data
		return configMap
	}
	acme := newConfigMap(t, merchantRecord("acme"))
	damaged := acme.DeepCopy()
	damaged.Data = nil
	ofAcme := tombstone(published.TombstoneMerchant, id)
	for name, test := range map[string]struct {
		happens func(merchants, tombstones *kube.Informer)
		deleted bool
	}{
		"never seen":                         {func(_, _ *kube.Informer) {}, false},
		"published":                          {func(merchants, _ *kube.Informer) { _ = merchants.Add(acme) }, false},
		"damaged":                            {func(merchants, _ *kube.Informer) { _ = merchants.Add(damaged) }, false},
		"of the next version":                {func(merchants, _ *kube.Informer) { _ = merchants.Add(laterConfigMap(t, "acme", nil)) }, false},
		"lost":                               {func(merchants, _ *kube.Informer) { _ = merchants.Add(acme); _ = merchants.Delete(acme) }, false},
		"lost, by a new list":                {func(merchants, _ *kube.Informer) { _ = merchants.Add(acme); _ = merchants.Replace(nil, "2") }, false},
		"tombstone":                          {func(_, tombstones *kube.Informer) { _ = tombstones.Add(ofAcme) }, true},
		"tombstone, on a list":               {func(_, tombstones *kube.Informer) { _ = tombstones.Replace([]any{ofAcme}, "1") }, true},
		"tombstone, twice":                   {func(_, tombstones *kube.Informer) { _ = tombstones.Add(ofAcme); _ = tombstones.Update(ofAcme) }, true},
		"tombstone, and merchants are stale": {func(merchants, tombstones *kube.Informer) { _ = merchants.Add(acme); _ = tombstones.Add(ofAcme) }, true},
		"tombstone of the next version":      {func(_, tombstones *kube.Informer) { _ = tombstones.Add(withData(ofAcme.DeepCopy(), `{"version":2}`)) }, true},
		"damaged tombstone":                  {func(_, tombstones *kube.Informer) { _ = tombstones.Add(withData(ofAcme.DeepCopy(), `{}`)) }, false},
		"tombstone of an ApiKey of its id":   {func(_, tombstones *kube.Informer) { _ = tombstones.Add(tombstone(published.TombstoneApiKey, id)) }, false},
		"tombstone of another":               {func(_, tombstones *kube.Informer) { _ = tombstones.Add(tombstone(published.TombstoneMerchant, other)) }, false},
		"tombstone, removed":                 {func(_, tombstones *kube.Informer) { _ = tombstones.Add(ofAcme); _ = tombstones.Delete(ofAcme) }, false},
		"tombstone, not on a new list":       {func(_, tombstones *kube.Informer) { _ = tombstones.Add(ofAcme); _ = tombstones.Replace(nil, "2") }, false},
		"tombstone, and that of an ApiKey of its id removed": {func(_, tombstones *kube.Informer) {
			_ = tombstones.Add(ofAcme)
			_ = tombstones.Delete(tombstone(published.TombstoneApiKey, id))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			test.happens(f.merchantInformer, f.Informer("tombstone"))
			if got := f.MerchantDeleted(id); got != test.deleted {
				t.Errorf("deleted %t, want %t", got, test.deleted)
			}
		})
	}
}

// The keys of a Merchant end with its tombstone, also while the published Merchant is still Active. Keys of another Merchant work on.
func TestIdentify_MerchantTombstone(t *testing.T) {
	f := newFixture()
	for _, uid := range []types.UID{"acme", "books"} {
		_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord(uid)))
	}
	id := published.ID("acme")
	key, record := f.publish(t, "till", "acme")
	other, _ := f.publish(t, "other", "books")
	tombstone, err := published.EncodeTombstone(namespace, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: id, Source: published.Source{Namespace: "shops", Name: "acme", UID: "acme"}, EndedAt: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, wantErr error) {
		t.Helper()
		if _, err := f.Identify(key, now); !errors.Is(err, wantErr) {
			t.Errorf("%s: Identify returns %v, want %v", when, err, wantErr)
		}
		if got := f.Accepts(record.KeyID, now); got != (wantErr == nil) {
			t.Errorf("%s: Accepts returns %t", when, got)
		}
		if got := f.Merchant(id); (got != nil) != (wantErr == nil) {
			t.Errorf("%s: Merchant returns %v", when, got)
		}
		if _, err := f.Identify(other, now); err != nil {
			t.Errorf("%s: a key of another Merchant is refused: %v", when, err)
		}
	}
	want("published", nil)
	_ = f.Informer("tombstone").Add(tombstone)
	want("with a tombstone", ErrMerchantMissing)
	_ = f.merchantInformer.Update(newConfigMap(t, merchantRecord("acme")))
	want("published again", ErrMerchantMissing)
}

func TestWatch_UndecodableKey(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	key, record := issue(t, "till", "acme")
	secret := newSecret(t, record)
	_ = f.keyInformer.Add(secret)

	_ = f.keyInformer.Update(broken(secret, "7"))
	if _, err := f.Identify(key, now); !errors.Is(err, ErrUnknown) {
		t.Fatalf("the key outlived its record: %v", err)
	}
	other, _ := f.publish(t, "other", "acme")
	if _, err := f.Identify(other, now); err != nil {
		t.Errorf("another key was lost: %v", err)
	}
	checkMetrics(t, f, 1, 1)

	_ = f.keyInformer.Replace([]any{broken(secret, "7")}, "8") // a relist says the same again
	checkMetrics(t, f, 1, 1)
	_ = f.keyInformer.Update(broken(secret, "9"))
	checkMetrics(t, f, 1, 2)
	if got := strings.Count(f.log.String(), "name=key-"+record.KeyID); got != 2 {
		t.Errorf("the log names it %d times, want once for each of 2 versions:\n%s", got, f.log)
	}
	if strings.Contains(f.log.String(), record.Current.Digest.Hex()) {
		t.Errorf("the log holds a digest:\n%s", f.log)
	}

	_ = f.keyInformer.Update(secret)
	checkMetrics(t, f, 0, 2)
	if _, err := f.Identify(key, now); err != nil {
		t.Errorf("the repaired key: %v", err)
	}
}

func TestWatch_UndecodableKeyDeleted(t *testing.T) {
	for name, vanish := range map[string]func(f fixture, object any){
		"deleted":  func(f fixture, object any) { _ = f.keyInformer.Delete(object) },
		"relisted": func(f fixture, _ any) { _ = f.keyInformer.Replace(nil, "9") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			_, record := issue(t, "till", "acme")
			secret := broken(newSecret(t, record), "7")
			_ = f.keyInformer.Add(secret)
			checkMetrics(t, f, 1, 1)
			vanish(f, secret)
			checkMetrics(t, f, 0, 1)
		})
	}
}

func TestWatch_UndecodableMerchant(t *testing.T) {
	f := newFixture()
	acme, _ := f.publish(t, "acme-till", "acme")
	books, _ := f.publish(t, "books-till", "books")
	configMap := newConfigMap(t, merchantRecord("acme"))
	_ = f.merchantInformer.Replace([]any{configMap, newConfigMap(t, merchantRecord("books"))}, "1")

	unreadable := configMap.DeepCopy()
	unreadable.Data = map[string]string{"merchant.json": strings.ReplaceAll(configMap.Data["merchant.json"], `"state":"Active"`, `"state":"Actve"`)}
	_ = f.merchantInformer.Update(unreadable)
	if _, err := f.Identify(acme, now); !errors.Is(err, ErrMerchantMissing) {
		t.Errorf("acme: %v", err)
	}
	if _, err := f.Identify(books, now); err != nil {
		t.Errorf("books: %v", err)
	}
}

// In a rolling upgrade a newer operator may write what this program cannot read yet. It goes on with what it knows.
func TestWatch_NewerVersion(t *testing.T) {
	f := newFixture()
	key, record := f.publish(t, "till", "acme")
	configMap := newConfigMap(t, merchantRecord("acme"))
	_ = f.merchantInformer.Add(configMap)
	newer := configMap.DeepCopy()
	newer.ResourceVersion = "7"
	newer.Data = map[string]string{"merchant.json": strings.ReplaceAll(configMap.Data["merchant.json"], `"version":1`, `"version":99`)}
	_ = f.merchantInformer.Update(newer)
	_ = f.keyInformer.Update(newerVersion(newSecret(t, record), "7"))
	_ = f.keyInformer.Replace([]any{newerVersion(newSecret(t, record), "7")}, "8")
	if got, err := f.Identify(key, now); err != nil || !got.Live {
		t.Errorf("live %v, %v", got.Live, err)
	}
	if len(f.events.calls) != 1 { // of the first sight
		t.Errorf("key events: %v", f.events.calls)
	}
	if !strings.Contains(f.log.String(), "name=key-"+record.KeyID) || !strings.Contains(f.log.String(), "name="+configMap.Name) {
		t.Errorf("the log does not name both:\n%s", f.log)
	}
}

func TestWatch_Relist(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Replace([]any{newConfigMap(t, merchantRecord("acme")), newConfigMap(t, merchantRecord("books"))}, "1")
	gone, _ := f.publish(t, "gone", "acme")
	kept, record := f.publish(t, "kept", "acme")
	closed, closedRecord := f.publish(t, "closed", "books")

	_ = f.keyInformer.Replace([]any{newSecret(t, record), newSecret(t, closedRecord)}, "2")
	_ = f.merchantInformer.Replace([]any{newConfigMap(t, merchantRecord("acme"))}, "2")
	for _, test := range []struct {
		key  string
		want error
	}{{gone, ErrUnknown}, {kept, nil}, {closed, ErrMerchantMissing}} {
		if _, err := f.Identify(test.key, now); !errors.Is(err, test.want) {
			t.Errorf("got %v, want %v", err, test.want)
		}
	}
}

// A reflector collects a first list read already, see kube.Informer.Transformer, and holds no Secret of it any more.
func TestWatch_ListReadOnArrival(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	gone, _ := f.publish(t, "gone", "acme")
	key, record := issue(t, "till", "acme")
	_, unreadable := issue(t, "unreadable", "acme")
	var list []any
	for _, secret := range []*corev1.Secret{newSecret(t, record), broken(newSecret(t, unreadable), "7")} {
		read, err := f.keyInformer.Transformer()(secret)
		if _, whole := read.(*corev1.Secret); whole || err != nil {
			t.Fatalf("read as %T, %v", read, err)
		}
		secret.Data = nil
		list = append(list, read)
	}
	_ = f.keyInformer.Replace(list, "8")
	if _, err := f.Identify(key, now); err != nil {
		t.Errorf("the key on the list: %v", err)
	}
	if _, err := f.Identify(gone, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("the key that is not on the list: %v", err)
	}
	checkMetrics(t, f, 1, 1)
}

func TestSynced_AllKindsListed(t *testing.T) {
	f := newFixture()
	synced := func() bool {
		select {
		case <-f.Synced():
			return true
		default:
			return false
		}
	}
	for step, want := range []bool{false, false, false, true, true} {
		if synced() != want {
			t.Fatalf("step %d: synced %v, want %v", step, synced(), want)
		}
		switch step {
		case 1:
			_ = f.merchantInformer.Replace(nil, "1")
		case 2:
			_ = f.Informer("tombstone").Replace(nil, "1")
		default:
			_ = f.keyInformer.Replace(nil, "1")
		}
	}
}

func checkMetrics(t *testing.T, f fixture, skippedNow, failures int) {
	t.Helper()
	want := strings.NewReplacer("{now}", string(rune('0'+skippedNow)), "{total}", string(rune('0'+failures))).Replace(`
# HELP merchant_operator_directory_undecodable_objects Published objects that are skipped because they cannot be decoded. The log has their names.
# TYPE merchant_operator_directory_undecodable_objects gauge
merchant_operator_directory_undecodable_objects{kind="key"} {now}
merchant_operator_directory_undecodable_objects{kind="merchant"} 0
merchant_operator_directory_undecodable_objects{kind="tombstone"} 0
# HELP merchant_operator_directory_undecodable_objects_total Versions of published objects that could not be decoded.
# TYPE merchant_operator_directory_undecodable_objects_total counter
merchant_operator_directory_undecodable_objects_total{kind="key"} {total}
merchant_operator_directory_undecodable_objects_total{kind="merchant"} 0
merchant_operator_directory_undecodable_objects_total{kind="tombstone"} 0
`)
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want),
		"merchant_operator_directory_undecodable_objects", "merchant_operator_directory_undecodable_objects_total"); err != nil {
		t.Error(err)
	}
}

// keyEvents records the calls of a KeyHandler.
type keyEvents struct {
	calls []string
	// onCall, if set, is called with each call.
	onCall func()
	// slow: what is to be written waits in waiting, until write.
	slow    bool
	waiting []func()
}

func (e *keyEvents) KeyUpdated(record published.KeyRecord, written func()) {
	e.record("updated %s revision %d", record.MerchantID, record.Revision)
	if e.waiting = append(e.waiting, written); !e.slow {
		e.write()
	}
}

// write has all records written that wait.
func (e *keyEvents) write() {
	for _, written := range e.waiting {
		written()
	}
	e.waiting = nil
}

func (e *keyEvents) KeyRevoked(record published.KeyRecord) {
	e.record("revoked %s revision %d", record.MerchantID, record.Revision)
}

func (e *keyEvents) KeyEnded(record published.KeyRecord, _ time.Time) {
	e.record("ended %s", record.MerchantID)
}

func (e *keyEvents) KeyUnverified(record published.KeyRecord) {
	e.record("unverified %s revision %d", record.MerchantID, record.Revision)
}

func (e *keyEvents) record(format string, args ...any) {
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
	if e.onCall != nil {
		e.onCall()
	}
}

func TestKeyEvents(t *testing.T) {
	coffee, books := published.ID("coffee"), published.ID("books")
	with := func(merchant types.UID, revision int64) *corev1.Secret {
		_, record := issue(t, "till", merchant, func(r *published.KeyRecord) { r.Revision = revision })
		return newSecret(t, record)
	}
	broken := with("coffee", 6)
	broken.Data = nil
	for desc, test := range map[string]struct {
		then func(fixture)
		want []string
	}{
		"a newer revision": {func(f fixture) { _ = f.keyInformer.Update(with("coffee", 6)) }, []string{"updated " + coffee + " revision 6"}},
		"the same again":   {func(f fixture) { _ = f.keyInformer.Update(with("coffee", 5)) }, nil},
		"one that was put back": {
			func(f fixture) { _ = f.keyInformer.Update(with("coffee", 4)) },
			[]string{"updated " + coffee + " revision 5", "unverified " + coffee + " revision 4"},
		},
		"its tombstone": {
			func(f fixture) { f.writeTombstone(t, decodeRecord(t, with("coffee", 5))) },
			[]string{"ended " + coffee},
		},
		"its tombstone, behind its deletion": {
			func(f fixture) {
				_ = f.keyInformer.Delete(with("coffee", 5))
				f.writeTombstone(t, decodeRecord(t, with("coffee", 5)))
			},
			[]string{"revoked " + coffee + " revision 5", "ended " + coffee},
		},
		"the same tombstone again": {
			func(f fixture) {
				f.writeTombstone(t, decodeRecord(t, with("coffee", 5)))
				f.writeTombstone(t, decodeRecord(t, with("coffee", 5)))
			},
			[]string{"ended " + coffee},
		},
		"put back behind its tombstone": {
			func(f fixture) {
				f.writeTombstone(t, decodeRecord(t, with("coffee", 5)))
				_ = f.keyInformer.Delete(with("coffee", 5))
				_ = f.keyInformer.Add(with("coffee", 5))
			},
			[]string{"ended " + coffee, "revoked " + coffee + " revision 5", "ended " + coffee},
		},
		"its deletion":         {func(f fixture) { _ = f.keyInformer.Delete(with("coffee", 5)) }, []string{"revoked " + coffee + " revision 5"}},
		"missing on a relist":  {func(f fixture) { _ = f.keyInformer.Replace(nil, "9") }, []string{"revoked " + coffee + " revision 5"}},
		"an unreadable record": {func(f fixture) { _ = f.keyInformer.Update(broken) }, []string{"revoked " + coffee + " revision 5"}},
		"newer on a relist": {
			func(f fixture) { _ = f.keyInformer.Replace([]any{with("coffee", 7)}, "9") },
			[]string{"updated " + coffee + " revision 7"},
		},
		"another merchant's": {
			func(f fixture) { _ = f.keyInformer.Update(with("books", 6)) },
			[]string{"revoked " + coffee + " revision 5", "updated " + books + " revision 6"},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := newFixture()
			_ = f.keyInformer.Replace([]any{with("coffee", 5)}, "1")
			if diff := cmp.Diff([]string{"unverified " + coffee + " revision 5"}, f.events.calls); diff != "" {
				t.Errorf("events of the first sight (-want +got):\n%s", diff)
			}
			f.events.calls = nil
			test.then(f)
			if diff := cmp.Diff(test.want, f.events.calls); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func decodeRecord(t *testing.T, secret *corev1.Secret) published.KeyRecord {
	t.Helper()
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// A key that ends is refused before the handler is called, which may take its time.
func TestKeyEvents_RefusedBefore(t *testing.T) {
	for desc, end := range map[string]func(fixture, published.KeyRecord){
		"deleted":       func(f fixture, record published.KeyRecord) { _ = f.keyInformer.Delete(newSecret(t, record)) },
		"its tombstone": func(f fixture, record published.KeyRecord) { f.writeTombstone(t, record) },
		"disabled": func(f fixture, record published.KeyRecord) {
			record.State, record.Revision = v1alpha1.ApiKeyDisabled, 2
			_ = f.keyInformer.Update(newSecret(t, record))
		},
		"disabled in a newer version": func(f fixture, record published.KeyRecord) {
			record.State, record.Revision = v1alpha1.ApiKeyDisabled, 2
			_ = f.keyInformer.Update(newerVersion(newSecret(t, record), "7"))
		},
		"expired": func(f fixture, record published.KeyRecord) {
			record.ExpiresAt, record.Revision = new(now.Add(-time.Second)), 2
			_ = f.keyInformer.Update(newSecret(t, record))
		},
		"rotated without an overlap": func(f fixture, record published.KeyRecord) {
			_, next := issue(t, "till", "coffee")
			_ = f.keyInformer.Update(newSecret(t, record.Rotated(next.Current, v1alpha1.RotationTrigger, 0, now)))
		},
		"another merchant's": func(f fixture, record published.KeyRecord) {
			record.MerchantID, record.Revision = published.ID("books"), 2
			_ = f.keyInformer.Update(newSecret(t, record))
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := newFixture()
			plaintext, record := issue(t, "till", "coffee")
			_ = f.keyInformer.Add(newSecret(t, record))
			_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("coffee")))
			_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("books")))
			called := 0
			f.events.slow, f.events.onCall = true, func() {
				called++
				if got, err := f.Identify(plaintext, now); err == nil && got.Live {
					t.Error("the key is accepted during the call")
				}
			}
			end(f, record)
			if called == 0 {
				t.Error("the handler is not called")
			}
		})
	}
}

// What is accepted in addition waits for the handler, through all that the watch brings meanwhile.
func TestKeyEvents_AcceptedAfter(t *testing.T) {
	f := newFixture()
	old, record := issue(t, "till", "coffee")
	expires := now.Add(time.Minute)
	record.ExpiresAt = &expires
	_ = f.keyInformer.Add(newSecret(t, record))
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("coffee")))
	f.events.slow = true
	want := func(when string, at time.Time, wanted map[string]bool) {
		t.Helper()
		for key, live := range wanted {
			got, err := f.Identify(key, at)
			if (err == nil && got.Live) != live {
				t.Errorf("%s: %s is accepted %t, %v, want %t", when, key, got.Live, err, live)
			}
		}
	}
	next, issued := issue(t, "till", "coffee")
	rotated := record.Rotated(issued.Current, v1alpha1.RotationTrigger, time.Hour, now)
	rotated.ExpiresAt = nil
	_ = f.keyInformer.Update(newSecret(t, rotated))
	want("rotated", now, map[string]bool{old: true, next: false})
	want("a minute later", expires, map[string]bool{old: false, next: false})
	_ = f.keyInformer.Replace([]any{newSecret(t, rotated)}, "9")
	want("listed again", now, map[string]bool{old: true, next: false})
	disabled := rotated
	disabled.State, disabled.Revision = v1alpha1.ApiKeyDisabled, rotated.Revision+1
	_ = f.keyInformer.Update(newSecret(t, disabled))
	enabled := rotated
	enabled.Revision = rotated.Revision + 2
	_ = f.keyInformer.Update(newSecret(t, enabled))
	want("disabled, and enabled again", now, map[string]bool{old: false, next: false})
	if f.Accepts(record.KeyID, now) {
		t.Error("Accepts is true of a key of which nothing is accepted yet")
	}
	last := f.events.waiting[len(f.events.waiting)-1]
	for _, earlier := range f.events.waiting[:len(f.events.waiting)-1] {
		earlier()
	}
	want("with the overrides of earlier records", now, map[string]bool{old: false, next: false})
	last()
	want("written", now, map[string]bool{old: true, next: true})
	want("written, a minute later", expires, map[string]bool{old: true, next: true})
}

// A record that was put back accepts nothing. The key that it replaces works on, here until that is written and then by its override.
func TestKeyEvents_RestoredRecord(t *testing.T) {
	f := newFixture()
	_, first := issue(t, "till", "coffee")
	next, issued := issue(t, "till", "coffee")
	newest := first.Rotated(issued.Current, v1alpha1.RotationTrigger, 0, now)
	_ = f.keyInformer.Add(newSecret(t, newest))
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("coffee")))
	f.events.slow = true
	live := func() bool {
		got, err := f.Identify(next, now)
		return err == nil && got.Live
	}
	_ = f.keyInformer.Update(newSecret(t, first))
	marked := first
	marked.Superseded, marked.Revision = true, first.Revision+1
	_ = f.keyInformer.Update(newSecret(t, marked))
	if !live() {
		t.Error("the newest key is refused before other replicas can know it")
	}
	f.events.write()
	if live() {
		t.Error("the directory still decides about the newest key, not its override")
	}
}
