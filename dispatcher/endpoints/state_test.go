package endpoints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// What cannot be read is still there.
func TestAMerchantThatCannotBeDecoded(t *testing.T) {
	s := newScene()
	id := published.ID("acme-uid")
	spoil := func() {
		_ = s.Informer("merchant").Update(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id), ResourceVersion: "7"}})
	}
	want := func(desc string, state State) {
		t.Helper()
		if e := s.Endpoint(id); e.State != state || len(s.All()) != 0 && state != Published {
			t.Errorf("%s: the state is %d, want %d", desc, e.State, state)
		}
	}
	s.publish(t, merchant(hook))
	spoil()
	want("spoilt", Unreadable)
	s.key(t, "till", 2)
	s.publish(t, merchant(hook))
	want("repaired", Published)
	if diff := cmp.Diff([]string{"till of Acme"}, *s.told); diff != "" {
		t.Error(diff)
	}
	spoil()
	_ = s.Informer("merchant").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id)}})
	want("deleted", Unknown)
	spoil()
	_ = s.Informer("merchant").Replace(nil, "")
	want("not on the next list", Unknown)
}

// In a rolling upgrade a newer operator may publish what this program does not understand.
func TestWhatANewerOperatorPublishesMakesEventsWait(t *testing.T) {
	s := newScene()
	id := published.ID("acme-uid")
	s.publish(t, merchant(hook))
	s.sign(t, published.NewWebhookRecord(merchant(hook), now))
	if e := s.Endpoint(id); e.State != Published || len(e.Secrets) != 1 {
		t.Fatalf("before: %+v", e)
	}
	const newer = `{"version": 2}`
	_ = s.Informer("webhook").Update(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: published.WebhookName(id), ResourceVersion: "7"}, Data: map[string][]byte{"webhook.json": []byte(newer)},
	})
	if e := s.Endpoint(id); e.State != Published || len(e.Secrets) != 0 {
		t.Errorf("a newer signing secret: %+v", e)
	}
	_ = s.Informer("merchant").Update(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id), ResourceVersion: "8"}, Data: map[string]string{"merchant.json": newer},
	})
	if e := s.Endpoint(id); e.State != Unreadable {
		t.Errorf("a newer merchant: %+v", e)
	}
	if !strings.Contains(s.log.String(), "newer version") {
		t.Errorf("the log does not say why: %s", s.log)
	}
}

// A published object that vanishes may be an accident. The operator writes a tombstone before it withdraws one.
func TestAMerchantThatWasWithdrawn(t *testing.T) {
	s := newScene()
	id := published.ID("acme-uid")
	want := func(desc string, state State) {
		t.Helper()
		if e := s.Endpoint(id); e.State != state {
			t.Errorf("%s: the state is %d, want %d", desc, e.State, state)
		}
	}
	bury := func(kind published.TombstoneKind) *corev1.ConfigMap {
		configMap, err := published.EncodeTombstone("credentials", published.Tombstone{
			Kind: kind, ID: id, Source: published.Source{Namespace: "shops", Name: "acme", UID: "acme-uid"}, EndedAt: now,
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Informer("tombstone").Update(configMap)
		return configMap
	}
	s.publish(t, merchant(hook))
	bury(published.TombstoneApiKey)
	tombstone := bury(published.TombstoneMerchant)
	want("both are there", Published)
	_ = s.Informer("merchant").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id)}})
	want("withdrawn", Withdrawn)
	_ = s.Informer("tombstone").Replace([]any{tombstone}, "")
	want("after a new list", Withdrawn)
	_ = s.Informer("tombstone").Replace(nil, "")
	want("without the tombstone", Unknown)
	bury(published.TombstoneApiKey)
	want("with the tombstone of a key", Unknown)
	if len(s.withdrawn) != 0 {
		t.Errorf("kept %v", s.withdrawn)
	}
}
