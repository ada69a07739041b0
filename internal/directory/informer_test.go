package directory

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
)

func TestAnUndecodableKeyIsSkippedAndTheRestGoesOn(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme")))
	key, record := issue(t, "till", "acme")
	secret := secretOf(t, record)
	_ = f.keyInformer.Add(secret)

	_ = f.keyInformer.Update(broken(secret, "7"))
	if _, err := f.Identify(key, now); !errors.Is(err, ErrUnknown) {
		t.Fatalf("the key outlived its record: %v", err)
	}
	other, _ := f.publish(t, "other", "acme")
	if _, err := f.Identify(other, now); err != nil {
		t.Errorf("another key was lost: %v", err)
	}
	wantMetrics(t, f, 1, 1)

	_ = f.keyInformer.Replace([]any{broken(secret, "7")}, "8") // a relist says the same again
	wantMetrics(t, f, 1, 1)
	_ = f.keyInformer.Update(broken(secret, "9"))
	wantMetrics(t, f, 1, 2)
	if got := strings.Count(f.log.String(), "name=key-"+record.KeyID); got != 2 {
		t.Errorf("the log names it %d times, want once for each of 2 versions:\n%s", got, f.log)
	}
	if strings.Contains(f.log.String(), record.Current.Digest.Hex()) {
		t.Errorf("the log holds a digest:\n%s", f.log)
	}

	_ = f.keyInformer.Update(secret)
	wantMetrics(t, f, 0, 2)
	if _, err := f.Identify(key, now); err != nil {
		t.Errorf("the repaired key: %v", err)
	}
}

func TestAnUndecodableKeyThatVanishesIsNoLongerCounted(t *testing.T) {
	for name, vanish := range map[string]func(f fixture, object any){
		"deleted":  func(f fixture, object any) { _ = f.keyInformer.Delete(object) },
		"relisted": func(f fixture, _ any) { _ = f.keyInformer.Replace(nil, "9") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			_, record := issue(t, "till", "acme")
			secret := broken(secretOf(t, record), "7")
			_ = f.keyInformer.Add(secret)
			wantMetrics(t, f, 1, 1)
			vanish(f, secret)
			wantMetrics(t, f, 0, 1)
		})
	}
}

func TestAnUndecodableMerchantBlocksItsKeysOnly(t *testing.T) {
	f := newFixture()
	acme, _ := f.publish(t, "acme-till", "acme")
	books, _ := f.publish(t, "books-till", "books")
	configMap := configMapOf(t, merchantRecord("acme"))
	_ = f.merchantInformer.Replace([]any{configMap, configMapOf(t, merchantRecord("books"))}, "1")

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
func TestWhatANewerProgramWroteEndsNothing(t *testing.T) {
	f := newFixture()
	key, record := f.publish(t, "till", "acme")
	configMap := configMapOf(t, merchantRecord("acme"))
	_ = f.merchantInformer.Add(configMap)
	newer := configMap.DeepCopy()
	newer.ResourceVersion = "7"
	newer.Data = map[string]string{"merchant.json": strings.ReplaceAll(configMap.Data["merchant.json"], `"version":1`, `"version":99`)}
	_ = f.merchantInformer.Update(newer)
	_ = f.keyInformer.Update(newerVersion(secretOf(t, record), "7"))
	_ = f.keyInformer.Replace([]any{newerVersion(secretOf(t, record), "7")}, "8")
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

func TestARelistRemovesWhatVanished(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Replace([]any{configMapOf(t, merchantRecord("acme")), configMapOf(t, merchantRecord("books"))}, "1")
	gone, _ := f.publish(t, "gone", "acme")
	kept, record := f.publish(t, "kept", "acme")
	closed, closedRecord := f.publish(t, "closed", "books")

	_ = f.keyInformer.Replace([]any{secretOf(t, record), secretOf(t, closedRecord)}, "2")
	_ = f.merchantInformer.Replace([]any{configMapOf(t, merchantRecord("acme"))}, "2")
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
func TestAListThatWasReadOnItsArrival(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme")))
	gone, _ := f.publish(t, "gone", "acme")
	key, record := issue(t, "till", "acme")
	_, unreadable := issue(t, "unreadable", "acme")
	var list []any
	for _, secret := range []*corev1.Secret{secretOf(t, record), broken(secretOf(t, unreadable), "7")} {
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
	wantMetrics(t, f, 1, 1)
}

func TestSyncedOnceAllKindsWereListed(t *testing.T) {
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

func wantMetrics(t *testing.T, f fixture, skippedNow, refusals int) {
	t.Helper()
	want := strings.NewReplacer("{now}", string(rune('0'+skippedNow)), "{total}", string(rune('0'+refusals))).Replace(`
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
