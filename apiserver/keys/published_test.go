package keys

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A rotation's time is Redis': the clock of the replica that rotates neither lengthens nor ends an overlap.
func TestPublished_RotateClockAhead(t *testing.T) {
	now := time.Now().UTC()
	record := revised("abcdefgh2345", 2)
	record.MerchantID, record.Generation = "bcdefghi2345", 1
	record.Source = published.Source{Namespace: "shops", Name: "till", UID: "uid"}
	record.Current.CreatedAt = now.Add(-time.Hour)
	record.LastRotation = published.RotationEvent{Time: now.Add(-time.Hour), Cause: v1alpha1.RotationInitial}
	record.Previous = []published.Previous{{Digest: apikey.NewDigest("earlier"), ValidUntil: now.Add(20 * time.Minute)}}
	secret, err := published.EncodeKey("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	keys := Published{Secrets: fake.NewClientset(secret).CoreV1().Secrets("credentials")}
	_, rotated, err := keys.rotate(t.Context(), record.KeyID, rotation{
		permit: func(published.KeyRecord) error { return nil }, overlap: 30 * time.Minute, at: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rotated.Previous) != 2 || !rotated.Previous[0].ValidUntil.Equal(now.Add(30*time.Minute)) {
		t.Errorf("the overlaps after the rotation are %v, want 30 minutes from %s and the earlier one", rotated.Previous, now)
	}
}

// The digest of an externally generated key that is replaced must not return if the record is lost while the operator is away.
func TestPublished_RotateRetiresClaim(t *testing.T) {
	now := time.Now().UTC()
	digest, earlier := apikey.NewDigest("vault"), apikey.NewDigest("earlier")
	for desc, tc := range map[string]struct {
		current apikey.Digest
		owner   string
		refused error
		want    bool
	}{
		"the current key":            {digest, "abcdefgh2345", nil, true},
		"a key issued over HTTP":     {earlier, "abcdefgh2345", nil, false},
		"a claim of another ApiKey":  {digest, "bcdefgh23456", nil, false},
		"a rotation that is refused": {digest, "abcdefgh2345", ErrNoKey, false},
	} {
		t.Run(desc, func(t *testing.T) {
			record := revised("abcdefgh2345", 2)
			record.MerchantID, record.Generation = "bcdefghi2345", 1
			record.Source = published.Source{Namespace: "shops", Name: "till", UID: "uid"}
			record.Current, record.HandledDigest = published.Current{Digest: tc.current, CreatedAt: now.Add(-time.Hour)}, &digest
			record.LastRotation = published.RotationEvent{Time: now.Add(-time.Hour), Cause: v1alpha1.RotationInitial}
			secret, err := published.EncodeKey("credentials", record)
			if err != nil {
				t.Fatal(err)
			}
			claim, err := published.EncodeDigestClaim("credentials", published.DigestClaim{
				Digest: digest, Source: record.Source, KeyID: tc.owner, ClaimedAt: now,
			})
			if err != nil {
				t.Fatal(err)
			}
			keys := Published{Secrets: fake.NewClientset(secret, claim).CoreV1().Secrets("credentials")}
			_, _, err = keys.rotate(t.Context(), record.KeyID, rotation{permit: func(published.KeyRecord) error { return tc.refused }, at: now})
			if !errors.Is(err, tc.refused) {
				t.Fatal(err)
			}
			stored, err := keys.Secrets.Get(t.Context(), claim.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := published.DecodeDigestClaim(stored); err != nil || got.Replaced != tc.want {
				t.Errorf("replaced %t, %v; want %t", got.Replaced, err, tc.want)
			}
		})
	}
}
