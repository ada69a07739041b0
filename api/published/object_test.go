package published_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

func TestID_IsFixedForever(t *testing.T) {
	// Computed with another SHA-256 and base32: an id that changes orphans every published object.
	for uid, want := range map[types.UID]string{
		"5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1": "45tolpnyxhz4",
		"0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e": "2yylmkzckvhj",
		"uid-1799671":                          "a4cmffab4vgd", // after test6bcredpe
	} {
		if got := published.ID(uid); got != want {
			t.Errorf("ID(%s) = %s, want %s", uid, got, want)
		}
	}
}

func TestTombstoneSubject(t *testing.T) {
	for name, want := range map[string]struct {
		kind published.TombstoneKind
		ok   bool
	}{
		published.KeyTombstoneName("abcdefgh2345"):      {published.TombstoneApiKey, true},
		published.MerchantTombstoneName("abcdefgh2345"): {published.TombstoneMerchant, true},
		published.MerchantTombstoneName("abcdefgh"):     {published.TombstoneMerchant, false},
		published.KeyTombstoneName(""):                  {published.TombstoneApiKey, false},
		published.MerchantName("abcdefgh2345"):          {ok: false},
	} {
		kind, id, ok := published.TombstoneSubject(name)
		if ok != want.ok || ok && (kind != want.kind || id != "abcdefgh2345") {
			t.Errorf("%s: %s %s, %t; want %+v", name, kind, id, ok, want)
		}
	}
}

func TestID_IsAKeyID(t *testing.T) {
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
		published.KeyName("abcdefgh2345"):          "key-abcdefgh2345",
		published.MerchantName("abcdefgh2345"):     "merchant-abcdefgh2345",
		published.PublicMerchantID("abcdefgh2345"): "mer_abcdefgh2345",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A newer record may have any shape, and is distinguished from a broken one.
func TestDecode_NewerVersion(t *testing.T) {
	key := must(published.EncodeKey(credentials, keyRecord()))(t)
	webhook := must(published.EncodeWebhook(credentials, webhookRecord()))(t)
	claim := must(published.EncodeDigestClaim(credentials, digestClaim()))(t)
	merchant := must(published.EncodeMerchant(credentials, merchantRecord()))(t)
	ended := must(published.EncodeTombstone(credentials, tombstone()))(t)
	for version, want := range map[string]bool{
		`{"version":2}`:                  true,
		`{"version":7,"current":"none"}`: true,
		`{"version":0}`:                  false,
		`{"version":-1}`:                 false,
		`{"version":"2"}`:                false,
		`{}`:                             false,
		`{"version":2`:                   false,
	} {
		key.Data["record.json"], webhook.Data["webhook.json"], claim.Data["claim.json"] = []byte(version), []byte(version), []byte(version)
		merchant.Data["merchant.json"], ended.Data["tombstone.json"] = version, version
		_, keyErr := published.DecodeKey(key)
		_, webhookErr := published.DecodeWebhook(webhook)
		_, claimErr := published.DecodeDigestClaim(claim)
		_, merchantErr := published.DecodeMerchant(merchant)
		_, endedErr := published.DecodeTombstone(ended)
		for kind, err := range map[string]error{"key": keyErr, "webhook": webhookErr, "claim": claimErr, "merchant": merchantErr, "tombstone": endedErr} {
			if errors.Is(err, published.ErrNewerVersion) != want || !errors.Is(err, published.ErrInvalid) {
				t.Errorf("%s of %s: %v; newer: want %t", version, kind, err, want)
			}
		}
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
