package published_test

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const credentials = "credentials"

var issued = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// keyRecord is a valid record with every field set, as it stands after a rotation by trigger.
func keyRecord() published.KeyRecord {
	expires := issued.AddDate(1, 0, 0)
	handled := apikey.NewDigest("handled")
	return published.KeyRecord{
		Version:    1,
		KeyID:      "abcdefgh2345",
		MerchantID: "merchant2345",
		Source:     published.Source{Namespace: "shops", Name: "acme-till-1", UID: "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"},
		Generation: 2,
		Revision:   issued.UnixMilli(),
		Current: published.Current{
			Digest:    apikey.NewDigest("current"),
			Prefix:    "mk_live_abcdefgh2345_0123",
			CreatedAt: issued,
		},
		Previous: []published.Previous{
			{Digest: apikey.NewDigest("previous"), ValidUntil: issued.Add(24 * time.Hour)},
		},
		State:          v1alpha1.ApiKeyActive,
		ExpiresAt:      &expires,
		Permissions:    []v1alpha1.Permission{v1alpha1.PermissionRead, v1alpha1.PermissionCancel},
		IPAllowlist:    []v1alpha1.IPBlock{"203.0.113.0/24"},
		LastRotation:   published.RotationEvent{Time: issued, Cause: v1alpha1.RotationTrigger},
		HandledTrigger: "2026-11-21",
		HandledDigest:  &handled,
	}
}

// merchantRecord is a valid record with every field set.
func merchantRecord() published.MerchantRecord {
	return published.MerchantRecord{
		Version:         1,
		MerchantID:      "merchant2345",
		Namespace:       "shops",
		Name:            "acme-coffee",
		UID:             "5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1",
		Generation:      4,
		DisplayName:     "Acme Coffee",
		State:           v1alpha1.MerchantActive,
		Currency:        "EUR",
		TimeZone:        "Europe/Berlin",
		IPAllowlist:     []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48", "198.51.100.7"},
		IPAllowlistMode: v1alpha1.IPAllowlistReport,
		RateLimit:       v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
		Sessions:        v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		Page:            &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks", ShowOrder: true},
		Webhook: &published.Webhook{Webhook: v1alpha1.Webhook{
			URL:        "https://shop.example/hooks",
			Events:     []v1alpha1.WebhookEvent{"session.completed"},
			SecretName: "acme-hooks",
		}},
	}
}

// The secrets of webhookRecord: 32 bytes counting up from 0, and from 32.
const (
	signingNow    = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	signingBefore = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
)

// webhookRecord is a valid record with every field set, as it stands after a rotation.
func webhookRecord() published.WebhookRecord {
	return published.WebhookRecord{
		Version:    1,
		MerchantID: "merchant2345",
		Source:     published.Source{Namespace: "shops", Name: "acme-coffee", UID: "5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1"},
		Current:    published.IssuedSecret{Secret: signingSecret(signingNow), CreatedAt: issued},
		Retired: []published.RetiredSecret{
			{Secret: signingSecret(signingBefore), ValidUntil: issued.Add(24 * time.Hour)},
		},
		HandledTrigger: "2026-11-21",
	}
}

// signingSecret reads a secret that is written in a test.
func signingSecret(s string) published.SigningSecret {
	secret, err := published.ParseSigningSecret(s)
	if err != nil {
		panic(err)
	}
	return secret
}
