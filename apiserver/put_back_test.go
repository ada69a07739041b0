package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// putBack writes an older version of a published Secret, as a backup tool does.
func (s *scene) putBack(older *corev1.Secret, revise func(*published.KeyRecord)) {
	s.t.Helper()
	record, err := published.DecodeKey(older)
	if err != nil {
		s.t.Fatal(err)
	}
	revise(&record)
	encoded, err := published.EncodeKey(s.namespace, record)
	if err != nil {
		s.t.Fatal(err)
	}
	secrets := kube.CoreV1().Secrets(s.namespace)
	switch secret, err := secrets.Get(s.t.Context(), older.Name, metav1.GetOptions{}); {
	case err == nil:
		secret.Data = encoded.Data
		s.updateSecret(secret)
	default:
		if _, err := secrets.Create(s.t.Context(), encoded, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene) eventuallySuperseded(key string) {
	s.t.Helper()
	eventually(s.t, "the record is marked as superseded", func() bool {
		record, err := published.DecodeKey(s.secretOf(key))
		return err == nil && record.Superseded
	})
}

// An older record that is put back revives no dead key, not even with a fresh revision, on no replica; it is marked, so that the
// operator issues a new key, which then works at once.
func TestARecordThatWasPutBackRevivesNoKey(t *testing.T) {
	for desc, revise := range map[string]func(*published.KeyRecord){
		"as it was":             func(*published.KeyRecord) {},
		"with a fresh revision": func(r *published.KeyRecord) { r.Revision = time.Now().UnixMilli() },
	} {
		for how, whileAway := range map[string]bool{"while replicas run": false, "while none runs": true} {
			t.Run(desc+", "+how, func(t *testing.T) {
				s := newScene(t)
				old := s.key("till", s.merchant("acme"))
				older := s.secretOf(old)
				first := s.start()
				fresh := s.rotated(first, old)
				if whileAway {
					first.cancel()
					if err := first.wantEnd(t); err != nil {
						t.Fatal(err)
					}
				}
				s.putBack(older, revise)
				replicas := []*replica{s.start()}
				if !whileAway {
					replicas = append(replicas, first)
				}
				s.eventuallySuperseded(old)
				for _, r := range replicas {
					r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
					r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK) // as long as the override lives
					r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
				}

				record, err := published.DecodeKey(s.secretOf(old))
				if err != nil {
					t.Fatal(err)
				}
				key := s.newKey(record.KeyID)
				now := time.Now().UTC()
				issued := record.Rotated(
					published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationTrigger, 0, now)
				s.putBack(s.secretOf(old), func(r *published.KeyRecord) { *r = issued })
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
func TestAVanishRevokesARotationThatWasMissed(t *testing.T) {
	s := newScene(t)
	old := s.key("till", s.merchant("acme"))
	frozen, behind := s.start(), s.start()
	frozen.proxy.FreezeWatches()
	behind.proxy.Cut()
	fresh := s.rotated(frozen, old)
	frozen.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if err := kube.CoreV1().Secrets(s.namespace).Delete(t.Context(), s.secretOf(old).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	behind.proxy.Mend()
	frozen.eventuallyStatus(fresh, http.StatusUnauthorized)
	behind.eventuallyStatus(fresh, http.StatusUnauthorized)
}

// A tombstone ends a key for good, also where nothing else is heard, and whatever is put back afterwards.
func TestATombstoneEndsAKeyForGood(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	secret := s.secretOf(key)
	frozen, r := s.start(), s.start()
	frozen.proxy.FreezeWatches()
	s.bury(secret)
	for _, each := range []*replica{r, frozen} {
		each.eventuallyStatus(key, http.StatusUnauthorized)
	}
	s.putBack(secret, func(r *published.KeyRecord) { r.Revision = time.Now().Add(time.Minute).UnixMilli() })
	late := s.start()
	for _, each := range []*replica{r, frozen, late} {
		each.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	}
}

// bury publishes the tombstone of the key of a published Secret.
func (s *scene) bury(secret *corev1.Secret) {
	s.t.Helper()
	record, err := published.DecodeKey(secret)
	if err != nil {
		s.t.Fatal(err)
	}
	tombstone, err := published.EncodeTombstone(s.namespace, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source, EndedAt: time.Now().UTC(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := kube.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), tombstone, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// Another tenant publishes the digest of a victim's key for its own merchant. Whatever becomes of the victim's key, it never opens the
// thief's merchant.
func TestAClaimedDigestNeverOpensTheThiefsMerchant(t *testing.T) {
	change := func(s *scene, key string, change func(*published.KeyRecord)) {
		s.putBack(s.secretOf(key), func(r *published.KeyRecord) {
			change(r)
			r.Revision = r.NextRevision(time.Now())
		})
	}
	for what, become := range map[string]func(s *scene, r *replica, key string){
		"rotated over HTTP": func(s *scene, r *replica, key string) { s.rotated(r, key) },
		"rotated by trigger": func(s *scene, _ *replica, key string) {
			change(s, key, func(r *published.KeyRecord) {
				next := s.newKey(r.KeyID)
				now := time.Now().UTC()
				*r = r.Rotated(published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}, v1alpha1.RotationTrigger, 0, now)
			})
		},
		"disabled": func(s *scene, _ *replica, key string) {
			change(s, key, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
		},
		"deleted": func(s *scene, _ *replica, key string) {
			secret := s.secretOf(key)
			s.bury(secret)
			if err := kube.CoreV1().Secrets(s.namespace).Delete(s.t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
				s.t.Fatal(err)
			}
		},
	} {
		for order, atOnce := range map[string]bool{"heard after the victim": false, "heard with the victim": true} {
			t.Run(what+", "+order, func(t *testing.T) {
				s := newScene(t)
				victim, thief := s.merchant("victim"), s.merchant("thief")
				steal := func(digest apikey.Digest) {
					s.key("thief-till", thief, func(r *published.KeyRecord) {
						r.Current = published.Current{Digest: digest, CreatedAt: time.Now().Add(-time.Hour).UTC()}
					})
				}
				key := s.key("victim-till", victim)
				var r *replica
				if atOnce {
					steal(apikey.DigestOf(key))
					r = s.start()
				} else {
					r = s.start()
					steal(apikey.DigestOf(key))
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
				become(s, r, key)
				eventually(t, "the victim's key is dead", func() bool { return !mine() })
				late := s.start() // one that never knew anything else
				late.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
			})
		}
	}
}
