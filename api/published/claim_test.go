package published_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// digestClaim is a valid one with every field set.
func digestClaim() published.DigestClaim {
	return published.DigestClaim{
		Version: 1, Digest: apikey.NewDigest("handled"), Source: keyRecord().Source, KeyID: "abcdefgh2345", ClaimedAt: issued,
	}
}

func TestDigestClaim_WireFormat(t *testing.T) {
	claimFormat.checkWire(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "digest-7o6l7p4gxis223sxnqp7lpxxk7",
			Labels:    map[string]string{"merchant-operator.io/published": "digest"},
		},
		Type: "merchant-operator.io/digest",
		Data: map[string][]byte{"claim.json": readGolden(t, "claim.json")},
	})
}

func TestDigestClaim_RoundTrip(t *testing.T) {
	claimFormat.checkRoundTrip(t, func(t *rapid.T) published.DigestClaim {
		return published.DigestClaim{
			Version:   1,
			Digest:    apikey.NewDigest(rapid.String().Draw(t, "key")),
			Source:    drawSource(t),
			KeyID:     rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "keyID"),
			ClaimedAt: drawMoment.Draw(t, "claimedAt"),
		}
	})
}

func TestDecodeDigestClaim_Invalid(t *testing.T) {
	claimFormat.checkInvalid(t, map[string]set{
		"a missing version":          {"version", nil},
		"a newer version":            {"version", 2},
		"no digest":                  {"digest", nil},
		"a digest that is none":      {"digest", secretWord},
		"another digest":             {"digest", apikey.NewDigest("another").Hex()},
		"no source":                  {"source", nil},
		"a source without a name":    {"source.name", nil},
		"no key id":                  {"keyID", nil},
		"a key id that is none":      {"keyID", secretWord},
		"no time of the claim":       {"claimedAt", nil},
		"a time of the claim's none": {"claimedAt", secretWord},
	})
	claimFormat.checkForeign(t, map[string]func(*corev1.Secret){
		"a Secret of a key": func(s *corev1.Secret) { s.Type = published.KeySecretType },
	})
	if _, err := published.EncodeDigestClaim(credentials, published.DigestClaim{}); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("an empty claim: %v, want ErrInvalid", err)
	}
}
