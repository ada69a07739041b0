package directory

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A digest can be published twice only for a key made elsewhere: in two ApiKeys of one merchant
// that moves it, or by somebody who wants charges of that key for himself.
func TestTheOldestLiveClaimToADigestHolds(t *testing.T) {
	shared := strings.Repeat("s", 40)
	claim := func(createdAt time.Time) func(*published.KeyRecord) {
		return func(r *published.KeyRecord) {
			r.Current = published.Current{Digest: apikey.DigestOf(shared), CreatedAt: createdAt}
		}
	}
	disabled := func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }

	for name, order := range map[string][]string{"the owner first": {"owner", "thief"}, "the thief first": {"thief", "owner"}} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			_ = s.merchantFeed.Add(configMapOf(t, merchantRecord("acme")))
			records := map[string]published.KeyRecord{}
			_, records["owner"] = issue(t, "owner", "acme", claim(now.Add(-time.Hour)))
			_, records["thief"] = issue(t, "thief", "acme", claim(now))
			for _, uid := range order {
				_ = s.keyFeed.Add(secretOf(t, records[uid]))
			}
			want := func(uid string) {
				t.Helper()
				got, err := s.Identify(shared, now)
				if err != nil || got.KeyID != records[uid].KeyID {
					t.Errorf("key id %s, %v, want the %s's", got.KeyID, err, uid)
				}
			}
			want("owner")
			s.publish(t, "owner", "acme", claim(now.Add(-time.Hour)), disabled)
			want("thief")
			_ = s.keyFeed.Update(secretOf(t, records["owner"]))
			want("owner")
			_ = s.keyFeed.Delete(secretOf(t, records["owner"]))
			want("thief")
			_ = s.keyFeed.Delete(secretOf(t, records["thief"]))
			if _, err := s.Identify(shared, now); err == nil {
				t.Error("a digest that nobody claims was accepted")
			}
		})
	}
}

func TestAChangedRecordReplacesItsDigests(t *testing.T) {
	s := newScene()
	_ = s.merchantFeed.Add(configMapOf(t, merchantRecord("acme")))
	old, record := s.publish(t, "till", "acme")
	fresh := reissue(t, "till")
	rotated := record.Rotated(published.Current{Digest: apikey.DigestOf(fresh), CreatedAt: now}, v1alpha1.RotationAPI, 0, now)
	_ = s.keyFeed.Update(secretOf(t, rotated))

	if got, err := s.Identify(old, now); err != nil || got.Live {
		t.Errorf("the old key: live %v, %v", got.Live, err)
	}
	if got, err := s.Identify(fresh, now); err != nil || !got.Live || got.Generation != 2 {
		t.Errorf("the new key: live %v, generation %d, %v", got.Live, got.Generation, err)
	}
	if len(s.index.claims) != 1 {
		t.Errorf("%d digests are indexed, want 1", len(s.index.claims))
	}
}
