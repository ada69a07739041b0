package endpoints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// What cannot be read is still there.
func TestAMerchantThatCannotBeDecoded(t *testing.T) {
	f := newFixture()
	id := published.ID("acme-uid")
	damage := func() {
		_ = f.Informer("merchant").Update(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id), ResourceVersion: "7"}})
	}
	want := func(desc string, state State) {
		t.Helper()
		if e := f.Endpoint(id); e.State != state {
			t.Errorf("%s: the state is %d, want %d", desc, e.State, state)
		}
	}
	f.publish(t, merchant(hook))
	damage()
	want("damaged", Undecodable)
	f.key(t, "till", 2, v1alpha1.RotationTrigger)
	f.publish(t, merchant(hook))
	want("repaired", Published)
	if diff := cmp.Diff([]string{"till of Acme"}, *f.rotated); diff != "" {
		t.Error(diff)
	}
	damage()
	_ = f.Informer("merchant").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id)}})
	want("deleted", Unknown)
	damage()
	_ = f.Informer("merchant").Replace(nil, "")
	want("not on the next list", Unknown)
}

// In a rolling upgrade a newer operator may publish what this program does not understand.
func TestWhatANewerOperatorPublishesMakesEventsWait(t *testing.T) {
	f := newFixture()
	id := published.ID("acme-uid")
	f.publish(t, merchant(hook))
	f.sign(t, published.NewWebhookRecord(merchant(hook), now))
	if e := f.Endpoint(id); e.State != Published || len(e.Secrets) != 1 {
		t.Fatalf("before: %+v", e)
	}
	const newer = `{"version": 2}`
	_ = f.Informer("webhook").Update(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: published.WebhookName(id), ResourceVersion: "7"}, Data: map[string][]byte{"webhook.json": []byte(newer)},
	})
	if e := f.Endpoint(id); e.State != Published || len(e.Secrets) != 0 {
		t.Errorf("a newer signing secret: %+v", e)
	}
	_ = f.Informer("merchant").Update(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id), ResourceVersion: "8"}, Data: map[string]string{"merchant.json": newer},
	})
	if e := f.Endpoint(id); e.State != Undecodable {
		t.Errorf("a newer merchant: %+v", e)
	}
	if !strings.Contains(f.log.String(), "newer version") {
		t.Errorf("the log does not say why: %s", f.log)
	}
}

// A published object that vanishes may be an accident. The operator writes a tombstone before it withdraws one.
func TestAMerchantThatWasWithdrawn(t *testing.T) {
	f := newFixture()
	id := published.ID("acme-uid")
	want := func(desc string, state State) {
		t.Helper()
		if e := f.Endpoint(id); e.State != state {
			t.Errorf("%s: the state is %d, want %d", desc, e.State, state)
		}
	}
	writeTombstone := func(kind published.TombstoneKind) *corev1.ConfigMap {
		configMap, err := published.EncodeTombstone("credentials", published.Tombstone{
			Kind: kind, ID: id, Source: published.Source{Namespace: "shops", Name: "acme", UID: "acme-uid"}, EndedAt: now,
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Informer("tombstone").Update(configMap)
		return configMap
	}
	f.publish(t, merchant(hook))
	writeTombstone(published.TombstoneApiKey)
	tombstone := writeTombstone(published.TombstoneMerchant)
	want("both are there", Published)
	_ = f.Informer("merchant").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id)}})
	want("withdrawn", Withdrawn)
	_ = f.Informer("tombstone").Replace([]any{tombstone}, "")
	want("after a new list", Withdrawn)
	_ = f.Informer("tombstone").Replace(nil, "")
	want("without the tombstone", Unknown)
	writeTombstone(published.TombstoneApiKey)
	want("with the tombstone of a key", Unknown)
	if len(f.withdrawn) != 0 {
		t.Errorf("kept %v", f.withdrawn)
	}
}
