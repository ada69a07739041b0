package published_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestKeyRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := drawKeyRecord(t)
		secret, err := published.EncodeKey(credentials, record)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := published.DecodeKey(secret)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, decoded, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

func TestMerchantRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := drawMerchantRecord(t)
		configMap, err := published.EncodeMerchant(credentials, record)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := published.DecodeMerchant(configMap)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, decoded, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

func TestWebhookRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := drawWebhookRecord(t)
		secret, err := published.EncodeWebhook(credentials, record)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := published.DecodeWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, decoded, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

func drawWebhookRecord(t *rapid.T) published.WebhookRecord {
	retired := rapid.Custom(func(t *rapid.T) published.RetiredSecret {
		return published.RetiredSecret{Secret: published.NewSigningSecret(), ValidUntil: drawMoment.Draw(t, "validUntil")}
	})
	return published.WebhookRecord{
		Version:        1,
		MerchantID:     rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "merchantID"),
		Source:         drawSource(t),
		Current:        published.IssuedSecret{Secret: published.NewSigningSecret(), CreatedAt: drawMoment.Draw(t, "createdAt")},
		Retired:        rapid.SliceOfN(retired, 0, published.MaxRetired).Draw(t, "retired"),
		HandledTrigger: rapid.String().Draw(t, "trigger"),
	}
}

func drawKeyRecord(t *rapid.T) published.KeyRecord {
	id := rapid.StringMatching(`[a-z2-7]{12}`)
	digest := rapid.Custom(func(t *rapid.T) apikey.Digest { return apikey.DigestOf(rapid.String().Draw(t, "key")) })
	previous := rapid.Custom(func(t *rapid.T) published.Previous {
		return published.Previous{
			Digest: digest.Draw(t, "digest"), Prefix: rapid.String().Draw(t, "prefix"), ValidUntil: drawMoment.Draw(t, "validUntil"),
		}
	})
	record := published.KeyRecord{
		Version:    1,
		KeyID:      id.Draw(t, "keyID"),
		MerchantID: id.Draw(t, "merchantID"),
		Source:     drawSource(t),
		Generation: rapid.Int64Range(1, 1<<53-1).Draw(t, "generation"),
		Revision:   rapid.Int64Range(1, 1<<53-1).Draw(t, "revision"),
		Current: published.Current{
			Digest:    digest.Draw(t, "current"),
			Prefix:    rapid.String().Draw(t, "prefix"),
			CreatedAt: drawMoment.Draw(t, "createdAt"),
		},
		Previous:       rapid.SliceOfN(previous, 0, published.MaxPrevious).Draw(t, "previous"),
		State:          rapid.SampledFrom([]v1alpha1.ApiKeyState{"Active", "Disabled"}).Draw(t, "state"),
		LastRotation:   published.RotationEvent{Time: drawMoment.Draw(t, "rotated"), Cause: "Trigger"},
		HandledTrigger: rapid.String().Draw(t, "trigger"),
	}
	record.Test = rapid.Bool().Draw(t, "test")
	record.Superseded = rapid.Bool().Draw(t, "superseded")
	if rapid.Bool().Draw(t, "expires") {
		expires := drawMoment.Draw(t, "expiresAt")
		record.ExpiresAt = &expires
	}
	if rapid.Bool().Draw(t, "external") {
		handled := digest.Draw(t, "handledDigest")
		record.HandledDigest = &handled
	}
	return record
}

func drawMerchantRecord(t *rapid.T) published.MerchantRecord {
	blocks := rapid.SliceOfN(rapid.SampledFrom([]v1alpha1.IPBlock{
		"203.0.113.0/24", "0.0.0.0/0", "::/0", "2001:db8::/48", "2001:DB8::1", "198.51.100.7", "198.51.100.7/32", "::1",
	}), 0, 8)
	record := published.MerchantRecord{
		Version:         1,
		MerchantID:      rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "merchantID"),
		Namespace:       rapid.StringN(1, 63, 253).Draw(t, "namespace"),
		Name:            rapid.StringN(1, 63, 253).Draw(t, "name"),
		UID:             types.UID(rapid.StringN(0, 36, 144).Draw(t, "uid")),
		DisplayName:     rapid.StringN(1, 128, 512).Draw(t, "displayName"),
		State:           rapid.SampledFrom([]v1alpha1.MerchantState{"Active", "Suspended", "Closed"}).Draw(t, "state"),
		Currency:        v1alpha1.Currency(rapid.StringMatching(`[A-Z]{3}`).Draw(t, "currency")),
		TimeZone:        rapid.SampledFrom([]v1alpha1.TimeZone{"", "UTC", "Europe/Berlin", "Not/A_Zone"}).Draw(t, "timeZone"),
		IPAllowlist:     blocks.Draw(t, "ipAllowlist"),
		IPAllowlistMode: rapid.SampledFrom([]v1alpha1.IPAllowlistMode{"", "Enforce", "Report"}).Draw(t, "ipAllowlistMode"),
		RateLimit: v1alpha1.RateLimit{
			RequestsPerSecond: rapid.Int32Min(1).Draw(t, "rate"), Burst: rapid.Int32Min(1).Draw(t, "burst"),
		},
		Sessions: v1alpha1.SessionSettings{
			LifetimeSeconds:     rapid.Int32Min(1).Draw(t, "lifetime"),
			IdempotencyMismatch: rapid.SampledFrom([]v1alpha1.IdempotencyMismatchPolicy{"Return", "Reject"}).Draw(t, "policy"),
		},
	}
	if rapid.Bool().Draw(t, "has webhook") {
		record.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{URL: "https://shop.example/" + rapid.String().Draw(t, "path")}}
		if rapid.Bool().Draw(t, "is removed") {
			record.Webhook.URL, record.Webhook.RemovedAt = "", drawMoment.Draw(t, "removed at")
			record.Webhook.Dropped = rapid.Bool().Draw(t, "has dropped")
		}
	}
	return record
}
