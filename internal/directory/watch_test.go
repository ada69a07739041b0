package directory

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

func TestWatchTakesInWhatIsThereAndWhatChanges(t *testing.T) {
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
func TestWatchLooksAtPublishedObjectsOnly(t *testing.T) {
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

func TestWatchDropsWhatVanishedWhileNobodyWatched(t *testing.T) {
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

func TestWatchSkipsWhatCannotBeDecoded(t *testing.T) {
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
	wantMetrics(t, c.fixture, 1, 1)
}

func TestWatchServesWhatItKnowsWhileTheAPIIsAway(t *testing.T) {
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
	proxy.Mend()
	c.eventually(t, fresh, nil)
	c.eventually(t, old, ErrUnknown)
}

func TestWatchIsNotSyncedBeforeTheAPIHasAnswered(t *testing.T) {
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
	proxy.Mend()
	proxy.ThawWatches()
	select {
	case <-c.Synced():
	case <-time.After(patience):
		t.Fatal("never synced")
	}
}

func TestAgeIsOfTheWatchThatIsFurtherBehind(t *testing.T) {
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
	acme := configMapOf(t, merchantRecord("acme"))
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
