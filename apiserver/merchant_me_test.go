package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestMerchantMe(t *testing.T) {
	f := newFixture(t)
	rotatedAt, expiresAt := time.Date(2026, 11, 20, 9, 30, 0, 500_000_000, time.UTC), time.Now().Add(time.Hour).UTC()
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48", "2001:db8::7"}
		r.TimeZone = "Europe/Berlin"
		r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 60, Burst: 120}
		r.Sessions = v1alpha1.SessionSettings{LifetimeSeconds: 600, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReject}
	})
	key := f.key("till", acme, func(r *published.KeyRecord) {
		r.Generation, r.ExpiresAt = 4, &expiresAt
		r.LastRotation = published.RotationEvent{Time: rotatedAt, Cause: v1alpha1.RotationTrigger}
	})
	parsed, err := apikey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	profile := func() map[string]any { return r.call(http.MethodGet, me, key, "").want(t, http.StatusOK).body }

	want := map[string]any{
		"livemode": true,
		"merchant": map[string]any{
			"id": "mer_" + acme.MerchantID, "name": "Acme acme", "status": "Active",
			"ipAllowlist": []any{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48", "2001:db8::7"},
			"timeZone":    "Europe/Berlin",
			"rateLimit":   map[string]any{"requestsPerSecond": 60.0, "burst": 120.0},
			"sessions":    map[string]any{"lifetimeSeconds": 600.0, "maxAmountCents": 10_000_000.0, "idempotencyMismatch": "Reject"},
		},
		"apiKey": map[string]any{
			"id": parsed.ID(), "prefix": parsed.Prefix(), "generation": 4.0,
			"createdAt": float64(f.secretOf(key).CreationTimestamp.UnixMilli()), "rotatedAt": float64(rotatedAt.UnixMilli()),
			"expiresAt": float64(expiresAt.UnixMilli()), "lastUsedAt": nil,
			"permissions": []any{"create", "read", "list", "cancel", "rotate"}, "ipAllowlist": []any{},
		},
	}
	if diff := cmp.Diff(want, profile()); diff != "" {
		t.Errorf("the first answer (-want +got):\n%s", diff)
	}
	lastUsedAt, ok := profile()["apiKey"].(map[string]any)["lastUsedAt"].(float64)
	if used := time.UnixMilli(int64(lastUsedAt)); !ok || time.Since(used).Abs() > time.Minute {
		t.Errorf("lastUsedAt %v after a use", used)
	}
}

func TestMerchantMe_Defaults(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	got := f.start().call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	if diff := cmp.Diff([]any{}, got.body["merchant"].(map[string]any)["ipAllowlist"]); diff != "" {
		t.Errorf("ipAllowlist (-want +got):\n%s", diff)
	}
	if zone := got.body["merchant"].(map[string]any)["timeZone"]; zone != "UTC" {
		t.Errorf("timeZone %v, want UTC", zone)
	}
	if expiry := got.body["apiKey"].(map[string]any)["expiresAt"]; expiry != nil {
		t.Errorf("expiresAt %v, want null", expiry)
	}
}
