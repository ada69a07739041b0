package published_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	secret, err := published.EncodeDigestClaim(credentials, digestClaim())
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "digest-7o6l7p4gxis223sxnqp7lpxxk7",
			Labels:    map[string]string{"merchant-operator.io/published": "digest"},
		},
		Type: "merchant-operator.io/digest",
		Data: map[string][]byte{"claim.json": readGolden(t, "claim.json")},
	}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("the Secret (-want +got):\n%s", diff)
	}
	decoded, err := published.DecodeDigestClaim(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digestClaim(), decoded); diff != "" {
		t.Errorf("the claim read from the golden file (-want +got):\n%s", diff)
	}
}

func TestDigestClaim_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := published.DigestClaim{
			Version:   1,
			Digest:    apikey.NewDigest(rapid.String().Draw(t, "key")),
			Source:    drawSource(t),
			KeyID:     rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "keyID"),
			ClaimedAt: drawMoment.Draw(t, "claimedAt"),
		}
		secret, err := published.EncodeDigestClaim(credentials, want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := published.DecodeDigestClaim(secret)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

func TestDecodeDigestClaim_Invalid(t *testing.T) {
	for desc, change := range map[string]set{
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
	} {
		t.Run(desc, func(t *testing.T) {
			secret, err := published.EncodeDigestClaim(credentials, digestClaim())
			if err != nil {
				t.Fatal(err)
			}
			secret.Data["claim.json"] = changed(t, secret.Data["claim.json"], change)
			_, err = published.DecodeDigestClaim(secret)
			assertRefused(t, err)
		})
	}
	secret, err := published.EncodeDigestClaim(credentials, digestClaim())
	if err != nil {
		t.Fatal(err)
	}
	secret.Type = published.KeySecretType
	if _, err := published.DecodeDigestClaim(secret); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("a Secret of a key: %v, want ErrInvalid", err)
	}
	if _, err := published.EncodeDigestClaim(credentials, published.DigestClaim{}); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("an empty claim: %v, want ErrInvalid", err)
	}
}
