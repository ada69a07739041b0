package endpoints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// What cannot be read is still there.
func TestEndpoint_Undecodable(t *testing.T) {
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
func TestEndpoint_NewerVersion(t *testing.T) {
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
func TestEndpoint_Withdrawn(t *testing.T) {
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

func TestTakeKey_ReportsRotations(t *testing.T) {
	f := newFixture()
	f.key(t, "early", 2, v1alpha1.RotationTrigger) // before its merchant, as the first lists may come in any order
	f.key(t, "gone", 2, v1alpha1.RotationTrigger)
	_ = f.Informer("key").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.KeyName(published.ID("gone"))}})
	if len(*f.rotated) != 0 {
		t.Fatalf("reported %v before the merchant was known", *f.rotated)
	}
	f.publish(t, merchant(nil))
	f.publish(t, merchant(nil))
	f.key(t, "first", 1, v1alpha1.RotationInitial) // issued, not rotated
	f.key(t, "late", 3, v1alpha1.RotationAPI)
	f.key(t, "lost", 1, v1alpha1.RotationRecovery) // its generation was lost with its record
	if diff := cmp.Diff([]string{"early of Acme", "late of Acme", "lost of Acme"}, *f.rotated); diff != "" {
		t.Error(diff)
	}
}

func TestTakeMerchant_ReportsChanges(t *testing.T) {
	f := newFixture()
	for i, step := range []struct {
		webhook *v1alpha1.Webhook
		changes bool
	}{
		{nil, false}, // seen first
		{hook, true},
		{hook, false},
		{&v1alpha1.Webhook{URL: hook.URL, Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}}, false},
		{&v1alpha1.Webhook{URL: hook.URL, TestTrigger: "1"}, true},
		{&v1alpha1.Webhook{URL: hook.URL, TestTrigger: "1"}, true}, // until it is handled
		{hook, false},
		{&v1alpha1.Webhook{URL: hook.URL, ResumeTrigger: "1"}, true},
		{nil, true},
		{&v1alpha1.Webhook{URL: "http://shop.example/hooks"}, true}, // refused
		{&v1alpha1.Webhook{URL: "http://shop.example/hooks"}, true},
	} {
		*f.changed = nil
		f.publish(t, merchant(step.webhook))
		if got := len(*f.changed) == 1; got != step.changes {
			t.Errorf("step %d: changed %v, want %t", i, *f.changed, step.changes)
		}
	}
	last := merchant(&v1alpha1.Webhook{URL: hook.URL, TestTrigger: "2"})
	last.Generation = 12
	f.publish(t, last)
	if e := f.Endpoint(published.ID("acme-uid")); e.TestTrigger != "2" || e.Generation != 12 {
		t.Errorf("got %+v", e)
	}
	id := published.ID("acme-uid")
	if ids := f.MerchantIDs(session.MerchantBucket(id)); len(ids) != 1 || ids[0] != id {
		t.Errorf("merchants of its bucket: %v", ids)
	}
	if ids := f.MerchantIDs((session.MerchantBucket(id) + 1) % session.Buckets); len(ids) != 0 {
		t.Errorf("merchants of another bucket: %v", ids)
	}
}
