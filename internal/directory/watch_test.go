package directory

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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
