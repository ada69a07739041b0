package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/audittest"
)

// eventuallyStatus waits until merchant/me answers a key with the status.
func (r *replica) eventuallyStatus(key string, status int) {
	r.t.Helper()
	eventually(r.t, "the status is "+http.StatusText(status), func() bool {
		return r.call(http.MethodGet, me, key, "").status == status
	})
}

// What is published while replicas run takes effect.
func TestDirectory_Changes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.start()
	acme := f.merchant("acme")
	key := f.key("till", acme)
	r.eventuallyStatus(key, http.StatusOK)

	acme.State = v1alpha1.MerchantSuspended
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusForbidden)
	acme.State = v1alpha1.MerchantActive
	acme.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusUnauthorized)
	acme.IPAllowlist = append(acme.IPAllowlist, "127.0.0.1")
	acme.DisplayName = "Renamed"
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusOK)
	if got := r.call(http.MethodGet, me, key, ""); got.body["merchant"].(map[string]any)["name"] != "Renamed" {
		t.Errorf("the profile is %s", got.raw)
	}

	second := f.key("second-till", acme)
	r.eventuallyStatus(second, http.StatusOK)
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.keySecret(key).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(key, http.StatusUnauthorized)
	r.call(http.MethodGet, me, second, "").want(t, http.StatusOK)
	name := published.MerchantName(acme.MerchantID)
	if err := kube.CoreV1().ConfigMaps(f.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(second, http.StatusUnauthorized)
}

// One undecodable object stops no other.
func TestDirectory_UndecodableObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, books := f.merchant("acme"), f.merchant("books")
	good, bad, ofBadMerchant := f.key("good", acme), f.key("bad", acme), f.key("of-bad-merchant", books)
	secret := f.keySecret(bad)
	intact := secret.DeepCopy()
	secret.Data["record.json"] = []byte(strings.Replace(string(secret.Data["record.json"]), `"state":"Active"`, `"state":"Actve"`, 1))
	f.updateSecret(secret)
	r := f.start()
	configMap := f.configMap(books)
	configMap.Data = nil
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	r.call(http.MethodGet, me, bad, "").want(t, http.StatusUnauthorized)
	r.eventuallyStatus(ofBadMerchant, http.StatusUnauthorized)
	r.call(http.MethodGet, me, good, "").want(t, http.StatusOK)
	for _, kind := range []string{"key", "merchant"} {
		if got := r.metric(`merchant_operator_directory_undecodable_objects{kind="` + kind + `"}`); got != "1" {
			t.Errorf("%s undecodable %ss are counted, want 1", got, kind)
		}
	}
	for _, name := range []string{secret.Name, configMap.Name} {
		if got := strings.Count(f.log.String(), `"name":"`+name+`"`); got != 1 {
			t.Errorf("the log names %s %d times, want once", name, got)
		}
	}

	repaired := f.keySecret(bad)
	repaired.Data = intact.Data
	f.updateSecret(repaired)
	r.eventuallyStatus(bad, http.StatusOK)
	f.changeMerchant(books)
	r.eventuallyStatus(ofBadMerchant, http.StatusOK)
	if got := r.metric(`merchant_operator_directory_undecodable_objects{kind="key"}`); got != "0" {
		t.Errorf("%s undecodable keys are counted after the repair", got)
	}
}

// The data plane goes on with what it knows.
func TestDirectory_KubernetesDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.Cut()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if status := getStatus(r.ops + "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d", status)
	}
	late := f.key("late", f.merchant("late"))
	r.proxy.Restore()
	r.eventuallyStatus(late, http.StatusOK)
}

// The next version has written records that these replicas cannot read whole, and was rolled back. Its envelopes refuse; a key that may
// be good is never 401.
func TestDirectory_RecordsOfTheNextVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, books := f.merchant("acme"), f.merchant("books")
	keys := map[string]string{}
	for _, name := range []string{"active", "disabled", "revoked", "of suspended", "of active"} {
		merchant := acme
		if strings.HasPrefix(name, "of ") {
			merchant = books
		}
		keys[name] = f.key(strings.ReplaceAll(name, " ", "-"), merchant)
	}
	running := f.start()
	for _, key := range keys {
		running.eventuallyStatus(key, http.StatusOK)
	}
	later := func(name string, replace ...string) {
		t.Helper()
		secret := f.keySecret(keys[name])
		text := strings.NewReplacer(append(replace, `"version":1`, `"version":2`, `"lastRotation":`, `"rotations":[],"lastRotation":7,"was":`)...).Replace(string(secret.Data["record.json"]))
		secret.Data["record.json"] = []byte(text)
		f.updateSecret(secret)
	}
	later("active")
	later("disabled", `"state":"Active"`, `"state":"Disabled"`)
	later("revoked", `"state":"Active"`, `"state":"Active","revoked":true`)
	configMap := f.configMap(books)
	configMap.Data["merchant.json"] = strings.NewReplacer(`"version":1`, `"version":2`, `"state":"Active"`, `"state":"Suspended"`, `"rateLimit":`, `"rateLimit":9,"was":`).
		Replace(configMap.Data["merchant.json"])
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	running.eventuallyStatus(keys["disabled"], http.StatusUnauthorized)
	running.eventuallyStatus(keys["revoked"], http.StatusUnauthorized)
	running.eventuallyStatus(keys["of suspended"], http.StatusForbidden)
	running.call(http.MethodGet, me, keys["active"], "").want(t, http.StatusOK)
	restarted := f.start()
	restarted.call(http.MethodGet, me, keys["disabled"], "").want(t, http.StatusUnauthorized)
	restarted.call(http.MethodGet, me, keys["revoked"], "").want(t, http.StatusUnauthorized)
	for _, name := range []string{"active", "of active", "of suspended"} {
		got := restarted.call(http.MethodGet, me, keys[name], "")
		got.wantError(t, http.StatusServiceUnavailable, "temporarily unavailable; retry")
		if got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name)
		}
	}
	restarted.call(http.MethodGet, me, f.newKey(published.ID("active")).Reveal(), "").want(t, http.StatusUnauthorized)
}

// putBack writes an older version of a published Secret, as a backup tool does.
func (f *fixture) putBack(older *corev1.Secret, revise func(*published.KeyRecord)) {
	f.t.Helper()
	record, err := published.DecodeKey(older)
	if err != nil {
		f.t.Fatal(err)
	}
	revise(&record)
	encoded, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	secrets := kube.CoreV1().Secrets(f.namespace)
	switch secret, err := secrets.Get(f.t.Context(), older.Name, metav1.GetOptions{}); {
	case err == nil:
		secret.Data = encoded.Data
		f.updateSecret(secret)
	default:
		if _, err := secrets.Create(f.t.Context(), encoded, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) eventuallySuperseded(key string) {
	f.t.Helper()
	eventually(f.t, "the record is marked as superseded", func() bool {
		record, err := published.DecodeKey(f.keySecret(key))
		return err == nil && record.Superseded
	})
}

// wantSupersededEntry wants that the audit log says what became of the restored first record of a key.
func (f *fixture) wantSupersededEntry(key string) {
	f.t.Helper()
	record, err := published.DecodeKey(f.keySecret(key))
	if err != nil {
		f.t.Fatal(err)
	}
	want := audittest.Line{
		"change": "superseded", "by": "service", "namespace": record.Source.Namespace, "name": record.Source.Name,
		"merchantID": record.MerchantID, "keyID": record.KeyID, "generation": 1.0,
	}
	for _, entry := range audittest.Lines(f.t, f.log.String()) {
		if entry["change"] == "superseded" && cmp.Equal(want, entry) {
			return
		}
	}
	f.t.Errorf("no entry of the audit log is %v", want)
}

// An older record that is put back revives no dead key, not even with a fresh revision, on no replica; it is marked, so that the
// operator issues a new key, which then works at once.
func TestDirectory_RestoredRecord(t *testing.T) {
	t.Parallel()
	for desc, revise := range map[string]func(*published.KeyRecord){
		"as it was":             func(*published.KeyRecord) {},
		"with a fresh revision": func(r *published.KeyRecord) { r.Revision = time.Now().UnixMilli() },
	} {
		for how, whileAway := range map[string]bool{"while replicas run": false, "while none runs": true} {
			t.Run(desc+", "+how, func(t *testing.T) {
				f := newFixture(t)
				old := f.key("till", f.merchant("acme"))
				older := f.keySecret(old)
				first := f.start()
				fresh := f.rotated(first, old)
				if whileAway {
					first.cancel()
					if err := first.wantEnd(t); err != nil {
						t.Fatal(err)
					}
				}
				f.putBack(older, revise)
				replicas := []*replica{f.start()}
				if !whileAway {
					replicas = append(replicas, first)
				}
				f.eventuallySuperseded(old)
				f.wantSupersededEntry(old)
				for _, r := range replicas {
					r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
					r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK) // as long as the override lives
					r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
				}

				record, err := published.DecodeKey(f.keySecret(old))
				if err != nil {
					t.Fatal(err)
				}
				key := f.newKey(record.KeyID)
				now := time.Now().UTC()
				issued := record.Rotated(
					published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationTrigger, 0, now)
				f.putBack(f.keySecret(old), func(r *published.KeyRecord) { *r = issued })
				for _, r := range replicas {
					r.eventuallyStatus(key.Reveal(), http.StatusOK)
					r.eventuallyStatus(fresh, http.StatusUnauthorized)
					r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
				}
			})
		}
	}
}

// A replica that missed a rotation hears that the key is gone. Another one, whose watch is frozen, takes the rotated key because of
// the rotation's override: it must learn of the end all the same.
func TestDirectory_VanishedAfterMissedRotation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	frozen, behind := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	behind.proxy.Cut()
	fresh := f.rotated(frozen, old)
	frozen.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.keySecret(old).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	behind.proxy.Restore()
	frozen.eventuallyStatus(fresh, http.StatusUnauthorized)
	behind.eventuallyStatus(fresh, http.StatusUnauthorized)
}

// A tombstone ends a key permanently, also on a frozen replica, and whatever record is restored afterwards.
func TestDirectory_Tombstone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	secret := f.keySecret(key)
	frozen, r := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	f.writeTombstone(secret)
	for _, each := range []*replica{r, frozen} {
		each.eventuallyStatus(key, http.StatusUnauthorized)
	}
	f.putBack(secret, func(r *published.KeyRecord) { r.Revision = time.Now().Add(time.Minute).UnixMilli() })
	late := f.start()
	for _, each := range []*replica{r, frozen, late} {
		each.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	}
}

// writeTombstone publishes the tombstone of the key of a published Secret.
func (f *fixture) writeTombstone(secret *corev1.Secret) {
	f.t.Helper()
	record, err := published.DecodeKey(secret)
	if err != nil {
		f.t.Fatal(err)
	}
	f.createTombstone(published.Tombstone{Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source})
}

// createTombstone publishes a tombstone of now.
func (f *fixture) createTombstone(tombstone published.Tombstone) {
	f.t.Helper()
	tombstone.EndedAt = time.Now().UTC()
	configMap, err := published.EncodeTombstone(f.namespace, tombstone)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// Another tenant publishes the digest of a victim's key for its own merchant. Whatever becomes of the victim's key, it never opens the
// thief's merchant.
func TestDirectory_StolenDigest(t *testing.T) {
	t.Parallel()
	change := func(f *fixture, key string, change func(*published.KeyRecord)) {
		f.putBack(f.keySecret(key), func(r *published.KeyRecord) {
			change(r)
			r.Revision = r.NextRevision(time.Now())
		})
	}
	for what, become := range map[string]func(f *fixture, r *replica, key string){
		"rotated over HTTP": func(f *fixture, r *replica, key string) { f.rotated(r, key) },
		"rotated by trigger": func(f *fixture, _ *replica, key string) {
			change(f, key, func(r *published.KeyRecord) {
				next := f.newKey(r.KeyID)
				now := time.Now().UTC()
				*r = r.Rotated(published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}, v1alpha1.RotationTrigger, 0, now)
			})
		},
		"disabled": func(f *fixture, _ *replica, key string) {
			change(f, key, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
		},
		"deleted": func(f *fixture, _ *replica, key string) {
			secret := f.keySecret(key)
			f.writeTombstone(secret)
			if err := kube.CoreV1().Secrets(f.namespace).Delete(f.t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		for order, atOnce := range map[string]bool{"received after the victim's": false, "received with the victim's": true} {
			t.Run(what+", "+order, func(t *testing.T) {
				f := newFixture(t)
				victim, thief := f.merchant("victim"), f.merchant("thief")
				steal := func(digest apikey.Digest) {
					f.key("thief-till", thief, func(r *published.KeyRecord) {
						r.Current = published.Current{Digest: digest, CreatedAt: time.Now().Add(-time.Hour).UTC()}
					})
				}
				key := f.key("victim-till", victim)
				var r *replica
				if atOnce {
					steal(apikey.NewDigest(key))
					r = f.start()
				} else {
					r = f.start()
					steal(apikey.NewDigest(key))
				}
				mine := func() bool {
					got := r.call(http.MethodGet, me, key, "")
					if got.status == http.StatusOK {
						if id := got.body["merchant"].(map[string]any)["id"]; id != published.PublicMerchantID(victim.MerchantID) {
							t.Fatalf("the key opens %v", id)
						}
					}
					return got.status == http.StatusOK
				}
				if !mine() {
					t.Error("the victim's key is refused")
				}
				become(f, r, key)
				eventually(t, "the victim's key is dead", func() bool { return !mine() })
				late := f.start() // one that never knew anything else
				late.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
			})
		}
	}
}
