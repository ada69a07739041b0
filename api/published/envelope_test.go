package published_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Records of a later version: the envelope, and all else in another shape. Programs that are out there read these bytes: they may not
// be edited, only added to.
const (
	laterKey = `{
		"version": 2, "keyID": "abcdefgh2345", "merchantID": "merchant2345",
		"source": {"namespace": "shops", "name": "acme-till-1", "uid": "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e", "cluster": 7},
		"generation": 2, "revision": 1795253400000,
		"current": {"digest": "CURRENT", "prefix": "mk_live_abcdefgh2345_0123", "createdAt": "2026-11-21T09:30:00Z", "algorithm": "sha256"},
		"state": "Active", "expiresAt": "2027-11-21T09:30:00Z", "test": true,
		"permissions": ["read", "payout"], "ipAllowlist": ["203.0.113.0/24", "till-7.shop.example"],
		"previous": {"count": 3}, "lastRotation": "Trigger", "handledDigest": ["a"]
	}`
	laterMerchant = `{
		"version": 2, "merchantID": "merchant2345", "namespace": "shops", "name": "acme-coffee", "state": "Active",
		"ipAllowlist": ["203.0.113.0/24"], "ipAllowlistMode": "Report", "rateLimit": 50, "webhook": []
	}`
)

func laterKeySecret(replace ...string) *corev1.Secret {
	text := strings.NewReplacer(append(replace, "CURRENT", apikey.NewDigest("current").Hex())...).Replace(laterKey)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "key-abcdefgh2345"}, Type: published.KeySecretType,
		Data: map[string][]byte{"record.json": []byte(text)},
	}
}

func laterMerchantConfigMap(replace ...string) *corev1.ConfigMap {
	text := strings.NewReplacer(replace...).Replace(laterMerchant)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "merchant-merchant2345"}, Data: map[string]string{"merchant.json": text}}
}

func TestDecodeKeyEnvelope(t *testing.T) {
	expires := issued.AddDate(1, 0, 0)
	want := published.KeyRecord{
		Version: 2, KeyID: "abcdefgh2345", MerchantID: "merchant2345",
		Source:     published.Source{Namespace: "shops", Name: "acme-till-1", UID: "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"},
		Generation: 2, Revision: 1795253400000,
		Current: published.Current{Digest: apikey.NewDigest("current"), Prefix: "mk_live_abcdefgh2345_0123", CreatedAt: issued},
		Test:    true, State: v1alpha1.ApiKeyActive, ExpiresAt: &expires,
		Permissions: []v1alpha1.Permission{"read", "payout"}, IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "0.0.0.0"},
	}
	for name, test := range map[string]struct {
		replace []string
		edit    func(*published.KeyRecord)
	}{
		"as it is":                    {nil, func(*published.KeyRecord) {}},
		"disabled":                    {[]string{`"Active"`, `"Disabled"`}, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }},
		"of a state of that time":     {[]string{`"Active"`, `"Paused"`}, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }},
		"revoked":                     {[]string{`"test": true`, `"test": true, "revoked": true`}, func(r *published.KeyRecord) { r.Revoked = true }},
		"revoked by a later one":      {[]string{`"test": true`, `"test": true, "revoked": true, "revokedBy": 2`}, func(r *published.KeyRecord) { r.Revocation = published.Revocation{Revoked: true, RevokedBy: 2} }},
		"superseded":                  {[]string{`"test": true`, `"test": true, "superseded": true`}, func(r *published.KeyRecord) { r.Superseded = true }},
		"that may do everything":      {[]string{`"permissions": ["read", "payout"], `, ``}, func(r *published.KeyRecord) { r.Permissions = nil }},
		"that may do nothing":         {[]string{`["read", "payout"]`, `[]`}, func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{} }},
		"from any address":            {[]string{`["203.0.113.0/24", "till-7.shop.example"]`, `[]`}, func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{} }},
		"from addresses of that time": {[]string{`"203.0.113.0/24", "till-7`, `"till-7`}, func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"0.0.0.0"} }},
		"of a version far from now":   {[]string{`"version": 2`, `"version": 99`}, func(r *published.KeyRecord) { r.Version = 99 }},
	} {
		t.Run(name, func(t *testing.T) {
			record := want
			test.edit(&record)
			got, err := published.DecodeKeyEnvelope(laterKeySecret(test.replace...))
			if diff := cmp.Diff(record, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if usable := got.Usable(issued); usable != (record.State == v1alpha1.ApiKeyActive && !record.Revoked && !record.Superseded) {
				t.Errorf("usable: %t", usable)
			}
		})
	}
	for name, secret := range map[string]*corev1.Secret{
		"no envelope":       laterKeySecret(laterKey, `{"version":2,"anything":"else"}`),
		"no digest":         laterKeySecret(`"digest": "CURRENT",`, ``),
		"another type":      {ObjectMeta: metav1.ObjectMeta{Name: "key-abcdefgh2345"}, Data: laterKeySecret().Data},
		"another key's":     laterKeySecret(`"abcdefgh2345"`, `"abcdefgh7777"`),
		"a bent envelope":   laterKeySecret(`"state": "Active"`, `"state": 1`),
		"no JSON":           laterKeySecret(laterKey, secretWord),
		"a bent permission": laterKeySecret(`"read", "payout"`, `1, 2`),
		"an unlimited time": laterKeySecret(`"expiresAt": "2027-11-21T09:30:00Z"`, `"expiresAt": "never"`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := published.DecodeKeyEnvelope(secret)
			assertRefused(t, err)
		})
	}
}

func TestDecodeMerchantEnvelope(t *testing.T) {
	for name, test := range map[string]struct {
		replace []string
		want    v1alpha1.MerchantState
		revoked bool
	}{
		"as it is":                {nil, v1alpha1.MerchantActive, false},
		"suspended":               {[]string{`"Active"`, `"Suspended"`}, v1alpha1.MerchantSuspended, false},
		"closed":                  {[]string{`"Active"`, `"Closed"`}, v1alpha1.MerchantClosed, false},
		"of a state of that time": {[]string{`"Active"`, `"Dormant"`}, v1alpha1.MerchantSuspended, false},
		"revoked":                 {[]string{`"rateLimit": 50`, `"revoked": true`}, v1alpha1.MerchantActive, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := published.DecodeMerchantEnvelope(laterMerchantConfigMap(test.replace...))
			want := published.MerchantRecord{
				Version: 2, MerchantID: "merchant2345", Namespace: "shops", Name: "acme-coffee", State: test.want,
				Revocation:  published.Revocation{Revoked: test.revoked},
				IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24"}, IPAllowlistMode: v1alpha1.IPAllowlistReport,
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	for name, replaced := range map[string][2]string{
		"no envelope": {laterMerchant, `{"version":2}`}, "another merchant's": {"merchant2345", "merchant7777"}, "no JSON": {laterMerchant, secretWord},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := published.DecodeMerchantEnvelope(laterMerchantConfigMap(replaced[0], replaced[1]))
			assertRefused(t, err)
		})
	}
}

// What this version cannot read of a later allowlist allows nobody.
func TestDecodeMerchantEnvelope_Allowlist(t *testing.T) {
	got, err := published.DecodeMerchantEnvelope(laterMerchantConfigMap(`"203.0.113.0/24"`, `"till-7.shop.example"`, `"Report"`, `"Learn"`))
	if diff := cmp.Diff([]v1alpha1.IPBlock{"0.0.0.0"}, got.IPAllowlist); err != nil || diff != "" || got.IPAllowlistMode != v1alpha1.IPAllowlistEnforce {
		t.Errorf("mode %s, %v (-want +got):\n%s", got.IPAllowlistMode, err, diff)
	}
}

// Of a signing secret, the envelope says whose it is, and nothing else is read.
func TestDecodeWebhookEnvelope(t *testing.T) {
	const later = `{"version": 2, "merchantID": "merchant2345",
		"source": {"namespace": "shops", "name": "acme-coffee", "uid": "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"}, "current": ["sealed"], "retired": 7}`
	decode := func(kind corev1.SecretType, replace ...string) (published.WebhookRecord, error) {
		return published.DecodeWebhookEnvelope(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "webhook-merchant2345"}, Type: kind,
			Data: map[string][]byte{"webhook.json": []byte(strings.NewReplacer(replace...).Replace(later))},
		})
	}
	got, err := decode(published.WebhookSecretType)
	want := published.Source{Namespace: "shops", Name: "acme-coffee", UID: "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"}
	if err != nil || got.Version != 2 || got.MerchantID != "merchant2345" || got.Source != want || !got.Current.Secret.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	for name, replaced := range map[string][2]string{
		"another merchant's": {"merchant2345", "merchant7777"}, "no source": {`"name": "acme-coffee",`, ""}, "no JSON": {later, secretWord},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(published.WebhookSecretType, replaced[0], replaced[1])
			assertRefused(t, err)
		})
	}
	_, err = decode(corev1.SecretTypeOpaque)
	assertRefused(t, err)
	secret := must(published.EncodeWebhook(credentials, webhookRecord()))(t)
	if got, err := published.DecodeWebhookEnvelope(secret); err != nil || got.Source != webhookRecord().Source {
		t.Errorf("of this version: %+v, %v", got, err)
	}
}

// An older operator revokes in a record that it cannot read, and changes nothing else of it.
func TestRevokeKey(t *testing.T) {
	before := laterKeySecret()
	now := time.UnixMilli(1795253400000 + 5).UTC()
	revoked, err := published.RevokeKey(before, true, now)
	if err != nil || revoked == nil {
		t.Fatal(revoked, err)
	}
	wantEdited(t, before.Data["record.json"], revoked.Data["record.json"], map[string]any{"revoked": true, "revokedBy": 1.0, "revision": 1795253400005.0})
	if again, err := published.RevokeKey(revoked, true, now); again != nil || err != nil {
		t.Errorf("revoked again: %v, %v", again, err)
	}
	restored, err := published.RevokeKey(revoked, false, now)
	if err != nil || restored == nil {
		t.Fatal(restored, err)
	}
	wantEdited(t, before.Data["record.json"], restored.Data["record.json"], map[string]any{"revoked": false, "revokedBy": 0.0, "revision": 1795253400006.0})
	if _, err := published.RevokeKey(laterKeySecret(laterKey, `{"version":2}`), true, now); err == nil {
		t.Error("a record without an envelope was edited")
	}
}

// An older operator narrows a record that it cannot read, and changes nothing else of it: not even addresses that it cannot read.
func TestRestrictKey(t *testing.T) {
	before := laterKeySecret()
	read, err := published.DecodeKeyEnvelope(before)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1795253400000 + 5).UTC()
	for name, test := range map[string]struct {
		want published.KeyRestriction
		edit map[string]any
	}{
		"nothing":           {published.KeyRestriction{Permissions: read.Permissions, IPAllowlist: read.IPAllowlist}, nil},
		"fewer permissions": {published.KeyRestriction{Permissions: []v1alpha1.Permission{"read"}, IPAllowlist: read.IPAllowlist}, map[string]any{"permissions": []any{"read"}}},
		"no permission":     {published.KeyRestriction{Permissions: []v1alpha1.Permission{}, IPAllowlist: read.IPAllowlist}, map[string]any{"permissions": []any{}}},
		"fewer addresses":   {published.KeyRestriction{Permissions: read.Permissions, IPAllowlist: []v1alpha1.IPBlock{"203.0.113.7"}}, map[string]any{"ipAllowlist": []any{"203.0.113.7"}}},
		"revoked":           {published.KeyRestriction{Revoked: true, Permissions: read.Permissions, IPAllowlist: read.IPAllowlist}, map[string]any{"revoked": true, "revokedBy": 1.0}},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := published.RestrictKey(before, test.want, now)
			if err != nil || (after == nil) != (test.edit == nil) {
				t.Fatal(after, err)
			}
			if after == nil {
				return
			}
			edit := map[string]any{"revoked": false, "revokedBy": 0.0, "revision": 1795253400005.0}
			maps.Copy(edit, test.edit)
			wantEdited(t, before.Data["record.json"], after.Data["record.json"], edit)
			if again, err := published.RestrictKey(after, test.want, now); again != nil || err != nil {
				t.Errorf("again: %v, %v", again, err)
			}
		})
	}
	everything := laterKeySecret(`"permissions": ["read", "payout"], `, ``)
	if after, err := published.RestrictKey(everything, published.KeyRestriction{Permissions: []v1alpha1.Permission{}, IPAllowlist: read.IPAllowlist}, now); after == nil || err != nil {
		t.Errorf("a key that may do everything is not narrowed to nothing: %v", err)
	}
	if _, err := published.RestrictKey(laterKeySecret(laterKey, `{"version":2}`), published.KeyRestriction{}, now); err == nil {
		t.Error("a record without an envelope was edited")
	}
}

// What an operator of a later version has revoked, this version never takes back: it does not know why. Nor does it say that the
// revocation is its own, because then another operator of this version would.
func TestRevoke_ByALaterOperator(t *testing.T) {
	for name, by := range map[string]string{"it says so": `, "revokedBy": 2`, "it says nothing": "", "it says nonsense": `, "revokedBy": -1`} {
		t.Run(name, func(t *testing.T) {
			for _, revoked := range []bool{true, false} {
				key, err := published.RevokeKey(laterKeySecret(`"test": true`, `"test": true, "revoked": true`+by), revoked, issued)
				if key != nil || err != nil {
					t.Errorf("revoked %t: wrote %v, %v", revoked, key, err)
				}
				merchant, err := published.RevokeMerchant(laterMerchantConfigMap(`"rateLimit": 50`, `"revoked": true`+by), revoked)
				if merchant != nil || err != nil {
					t.Errorf("revoked %t: wrote %v, %v", revoked, merchant, err)
				}
			}
		})
	}
}

func TestRevokeMerchant(t *testing.T) {
	before := laterMerchantConfigMap()
	revoked, err := published.RevokeMerchant(before, true)
	if err != nil || revoked == nil {
		t.Fatal(revoked, err)
	}
	wantEdited(t, []byte(before.Data["merchant.json"]), []byte(revoked.Data["merchant.json"]), map[string]any{"revoked": true, "revokedBy": 1.0})
	if again, err := published.RevokeMerchant(revoked, true); again != nil || err != nil {
		t.Errorf("revoked again: %v, %v", again, err)
	}
	if _, err := published.RevokeMerchant(laterMerchantConfigMap(laterMerchant, `{"version":2}`), true); err == nil {
		t.Error("a record without an envelope was edited")
	}
}

// wantEdited checks that only these fields of a record differ.
func wantEdited(t *testing.T, before, after []byte, fields map[string]any) {
	t.Helper()
	var want, got map[string]any
	if err := json.Unmarshal(before, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	maps.Copy(want, fields)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What this version writes has the envelope too.
func TestEnvelope_ThisVersion(t *testing.T) {
	record := keyRecord()
	secret := must(published.EncodeKey(credentials, record))(t)
	got, err := published.DecodeKeyEnvelope(secret)
	want := record
	want.Previous, want.LastRotation, want.HandledTrigger, want.HandledDigest = nil, published.RotationEvent{}, "", nil
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	revoked := must(published.RevokeKey(secret, true, issued))(t)
	if decoded, err := published.DecodeKey(revoked); err != nil || !decoded.Revoked || decoded.Usable(issued) || len(decoded.Accepted()) != 0 {
		t.Errorf("%+v, %v", decoded, err)
	}
	merchant := must(published.EncodeMerchant(credentials, merchantRecord()))(t)
	if got, err := published.DecodeMerchantEnvelope(merchant); err != nil || got.State != v1alpha1.MerchantActive || got.Name != "acme-coffee" {
		t.Errorf("%+v, %v", got, err)
	}
}
