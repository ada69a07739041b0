package published_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

func TestIDIsFixedForever(t *testing.T) {
	// Computed with another SHA-256 and base32: an id that changes orphans every published object.
	for uid, want := range map[types.UID]string{
		"5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1": "45tolpnyxhz4",
		"0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e": "2yylmkzckvhj",
	} {
		if got := published.ID(uid); got != want {
			t.Errorf("ID(%s) = %s, want %s", uid, got, want)
		}
	}
}

func TestAnIDIsAKeyID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := published.ID(types.UID(rapid.String().Draw(t, "uid")))
		key, err := apikey.New(id)
		if err != nil {
			t.Fatal(err)
		}
		if key.ID() != id {
			t.Fatalf("a key made for %s has the id %s", id, key.ID())
		}
	})
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		published.KeyName("abcdefgh2345"):         "key-abcdefgh2345",
		published.MerchantName("abcdefgh2345"):    "merchant-abcdefgh2345",
		published.ShownMerchantID("abcdefgh2345"): "mer_abcdefgh2345",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
