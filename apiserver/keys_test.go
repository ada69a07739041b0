package apiserver_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const rotate = "/api/v1/keys/rotate"

// rotated rotates a key and returns the new one.
func (f *fixture) rotated(r *replica, key string) string {
	f.t.Helper()
	fresh := r.call(http.MethodPost, rotate, key, "").want(f.t, http.StatusOK).text("fullKey")
	f.issued = append(f.issued, fresh)
	return fresh
}

func TestRotateKey(t *testing.T) {
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodPost, rotate, old, "").want(t, http.StatusOK)
	f.issued = append(f.issued, got.text("fullKey"))
	fresh, err := apikey.Parse(got.text("fullKey"))
	if err != nil {
		t.Fatal(err)
	}
	oldKey, err := apikey.Parse(old)
	if err != nil || fresh.ID() != oldKey.ID() || fresh.Reveal() == old {
		t.Errorf("the new key has key id %s, the old one %s, %v", fresh.ID(), oldKey.ID(), err)
	}
	want := map[string]any{
		"fullKey": fresh.Reveal(), "prefix": fresh.Prefix(),
		"warning": "Store this key securely now: it is not shown again. The previous key no longer works.",
	}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}

	r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
	profile := r.call(http.MethodGet, me, fresh.Reveal(), "").want(t, http.StatusOK)
	if prefix := profile.body["apiKey"].(map[string]any)["prefix"]; prefix != fresh.Prefix() {
		t.Errorf("prefix %v, want %s", prefix, fresh.Prefix())
	}
	if f.rotated(r, f.rotated(r, fresh.Reveal())) == "" {
		t.Error("the new key did not rotate")
	}
}

func TestRotationWritesTheRecordAndNothingElse(t *testing.T) {
	f := newFixture(t)
	overlapping := f.newKey(published.ID("earlier")).Reveal()
	handled := apikey.DigestOf("handled")
	old := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Generation, r.HandledTrigger, r.HandledDigest = 7, "2026-11-21", &handled
		r.Previous = []published.Previous{{Digest: apikey.DigestOf(overlapping), ValidUntil: time.Now().Add(time.Hour).UTC()}}
	})
	before := f.secretOf(old)
	before.Labels["team"], before.Annotations = "payments", map[string]string{"note": "kept"}
	before.Data["other"] = []byte("kept")
	f.updateSecret(before)
	r := f.start()
	r.call(http.MethodGet, me, overlapping, "").want(t, http.StatusOK)
	fresh := f.rotated(r, old)
	r.call(http.MethodGet, me, overlapping, "").want(t, http.StatusUnauthorized)

	after := f.secretOf(old)
	record, err := published.DecodeKey(after)
	if err != nil {
		t.Fatal(err)
	}
	wantRecord, err := published.DecodeKey(before)
	if err != nil {
		t.Fatal(err)
	}
	if record.Revision <= wantRecord.Revision {
		t.Errorf("revision %d after %d", record.Revision, wantRecord.Revision)
	}
	wantRecord.Generation, wantRecord.Revision, wantRecord.Previous = 8, record.Revision, nil
	wantRecord.Current = published.Current{Digest: apikey.DigestOf(fresh), Prefix: fresh[:25], CreatedAt: record.Current.CreatedAt}
	wantRecord.LastRotation = published.RotationEvent{Time: record.Current.CreatedAt, Cause: v1alpha1.RotationAPI}
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if time.Since(record.Current.CreatedAt).Abs() > time.Minute {
		t.Errorf("createdAt %s", record.Current.CreatedAt)
	}
	if after.Labels["team"] != "payments" || after.Annotations["note"] != "kept" || string(after.Data["other"]) != "kept" {
		t.Errorf("what else was in the Secret is lost: %v %v", after.Labels, after.Annotations)
	}
	for _, key := range []string{old, fresh} {
		if strings.Contains(string(after.Data["record.json"]), key) {
			t.Error("a key is in the Secret in plaintext")
		}
	}
}

// The guarantee of a rotation: no replica accepts the old key, every replica accepts the new one,
// though the watches of all of them are frozen.
func TestRotationHoldsWhileEveryWatchIsFrozen(t *testing.T) {
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	replicas := []*replica{f.start(), f.start()}
	for _, r := range replicas {
		r.proxy.FreezeWatches()
	}
	for turn := range 4 {
		fresh := f.rotated(replicas[turn%2], old) // by what is, not by what the replica knows
		for _, r := range replicas {
			r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
			r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
			got := r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
			if prefix := got.body["apiKey"].(map[string]any)["prefix"]; prefix != fresh[:25] {
				t.Errorf("prefix %v is not of the presented key", prefix)
			}
		}
		old = fresh
	}
}

func TestOfManyRotationsOneWins(t *testing.T) {
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	replicas := []*replica{f.start(), f.start()}
	const calls = 16
	answers := make([]result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() { answers[i] = replicas[i%2].call(http.MethodPost, rotate, old, "") })
	}
	group.Wait()
	var winners []string
	for _, got := range answers {
		if got.status == http.StatusOK {
			winners = append(winners, got.text("fullKey"))
		} else {
			got.want(t, http.StatusUnauthorized)
		}
	}
	f.issued = append(f.issued, winners...)
	if len(winners) != 1 {
		t.Fatalf("%d rotations won, want 1", len(winners))
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, winners[0], "").want(t, http.StatusOK)
	}
}

func TestAKeyMadeElsewhereRotatesIntoAGeneratedOne(t *testing.T) {
	f := newFixture(t)
	elsewhere := strings.Repeat("elsewhere", 5)
	f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.DigestOf(elsewhere), CreatedAt: time.Now().UTC()}
	})
	r := f.start()
	fresh := f.rotated(r, elsewhere)
	r.call(http.MethodGet, me, elsewhere, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}

func TestADeletedKeyDoesNotRotate(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.FreezeWatches()
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.secretOf(key).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
}

func TestADisabledKeyDoesNotRotateEvenBeforeTheReplicaKnows(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.FreezeWatches()
	secret := f.secretOf(key)
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	record.State = v1alpha1.ApiKeyDisabled
	disabled, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = disabled.Data
	f.updateSecret(secret)
	r.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
}

// A key in its overlap works everywhere, but it must not end the key that took its place.
func TestAKeyInItsOverlapDoesNotRotate(t *testing.T) {
	f := newFixture(t)
	var replaced string
	current := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		replaced = f.newKey(r.KeyID).Reveal()
		r.Previous = []published.Previous{{Digest: apikey.DigestOf(replaced), ValidUntil: time.Now().Add(time.Hour).UTC()}}
	})
	r := f.start()
	r.call(http.MethodPost, rotate, replaced, "").want(t, http.StatusUnauthorized)
	for _, key := range []string{current, replaced} {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
		r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	}
	fresh := f.rotated(r, current)
	r.call(http.MethodGet, me, replaced, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}
