package published_test

import (
	"errors"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// A newer record may have any other shape, and is told apart from one that is broken.
func TestANewerVersionIsToldApart(t *testing.T) {
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
