package keys

import (
	"testing"
	"time"

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
