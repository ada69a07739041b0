package published_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The golden files are what running programs have written. When one of these tests fails, replicas
// of the version before could misread the new records: keep the format, or raise the version.

func TestDecode_Releases(t *testing.T) {
	t.Run("key", keyFormat.checkReleases)
	t.Run("merchant", merchantFormat.checkReleases)
	t.Run("webhook", webhookFormat.checkReleases)
	t.Run("claim", claimFormat.checkReleases)
	t.Run("tombstone", tombstoneFormat.checkReleases)
}

func TestKeyRecord_WireFormat(t *testing.T) {
	keyFormat.checkWire(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "key-abcdefgh2345",
			Labels:    map[string]string{"merchant-operator.io/published": "key"},
		},
		Type: "merchant-operator.io/api-key",
		Data: map[string][]byte{"record.json": readGolden(t, "record.json")},
	})
}

func TestMerchantRecord_WireFormat(t *testing.T) {
	merchantFormat.checkWire(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "merchant-merchant2345",
			Labels:    map[string]string{"merchant-operator.io/published": "merchant"},
		},
		Data: map[string]string{"merchant.json": string(readGolden(t, "merchant.json"))},
	})
}

func TestWebhookRecord_WireFormat(t *testing.T) {
	webhookFormat.checkWire(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "webhook-merchant2345",
			Labels:    map[string]string{"merchant-operator.io/published": "webhook"},
		},
		Type: "merchant-operator.io/webhook",
		Data: map[string][]byte{"webhook.json": readGolden(t, "webhook.json")},
	})
}

// A record of an operator that did not write the Merchant's UID yet is still that merchant's.
func TestMerchantRecord_NoUID(t *testing.T) {
	configMap := merchantFormat.encoded(t)
	merchantFormat.edit(configMap, func(data []byte) []byte { return changed(t, data, set{"uid", nil}) })
	got, err := published.DecodeMerchant(configMap)
	if err != nil {
		t.Fatal(err)
	}
	want := merchantRecord()
	want.UID = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeyRecord_RoundTrip(t *testing.T) { keyFormat.checkRoundTrip(t, drawKeyRecord) }

func TestMerchantRecord_RoundTrip(t *testing.T) { merchantFormat.checkRoundTrip(t, drawMerchantRecord) }

func TestWebhookRecord_RoundTrip(t *testing.T) { webhookFormat.checkRoundTrip(t, drawWebhookRecord) }

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
	digest := rapid.Custom(func(t *rapid.T) apikey.Digest { return apikey.NewDigest(rapid.String().Draw(t, "key")) })
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

func TestDecodeKey_ForeignSecret(t *testing.T) {
	keyFormat.checkForeign(t, map[string]func(*corev1.Secret){
		"another name":       func(s *corev1.Secret) { s.Name = "key-zzzzzzzz2345" },
		"no type":            func(s *corev1.Secret) { s.Type = "" },
		"an Opaque Secret":   func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"no data":            func(s *corev1.Secret) { s.Data = nil },
		"an empty record":    func(s *corev1.Secret) { s.Data["record.json"] = nil },
		"a record cut short": func(s *corev1.Secret) { s.Data["record.json"] = s.Data["record.json"][:40] },
		"two records": func(s *corev1.Secret) {
			s.Data["record.json"] = append(s.Data["record.json"], s.Data["record.json"]...)
		},
		"null":          func(s *corev1.Secret) { s.Data["record.json"] = []byte("null") },
		"a list":        func(s *corev1.Secret) { s.Data["record.json"] = []byte("[]") },
		"words":         func(s *corev1.Secret) { s.Data["record.json"] = []byte(secretWord) },
		"a quoted word": func(s *corev1.Secret) { s.Data["record.json"] = []byte(`"` + secretWord + `"`) },
	})
}

func TestDecodeMerchant_ForeignConfigMap(t *testing.T) {
	merchantFormat.checkForeign(t, map[string]func(*corev1.ConfigMap){
		"another name": func(c *corev1.ConfigMap) { c.Name = "merchant-zzzzzzzz2345" },
		"no data":      func(c *corev1.ConfigMap) { c.Data = nil },
		"binary data": func(c *corev1.ConfigMap) {
			c.BinaryData, c.Data = map[string][]byte{"merchant.json": []byte(c.Data["merchant.json"])}, nil
		},
		"words": func(c *corev1.ConfigMap) { c.Data["merchant.json"] = secretWord },
	})
}

// Unknown fields and labels are ignored.
func TestDecode_UnknownFields(t *testing.T) {
	keyFormat.checkIgnored(t, set{"current.algorithm", "sha256"})
	merchantFormat.checkIgnored(t, set{"tier", "gold"})
	webhookFormat.checkIgnored(t, set{"current.algorithm", "sha256"})
	claimFormat.checkIgnored(t, set{"source.cluster", "eu-1"})
	tombstoneFormat.checkIgnored(t, set{"reason", "gone"})
}

// A newer cause of a rotation is decoded: it is only shown.
func TestDecodeKey_NewerCauseOfRotation(t *testing.T) {
	record := keyRecord()
	record.LastRotation.Cause = "Leak"
	secret, err := published.EncodeKey(credentials, record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := published.DecodeKey(secret); err != nil {
		t.Errorf("a key is lost over a word that is only shown: %v", err)
	}
}

// What a reader would skip is not encoded.
func TestEncode_Invalid(t *testing.T) {
	key := keyRecord()
	key.State = "On"
	if _, err := published.EncodeKey(credentials, key); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("a key of unknown state: %v, want ErrInvalid", err)
	}
	key = keyRecord()
	key.Current.CreatedAt = issued.AddDate(9000, 0, 0)
	if _, err := published.EncodeKey(credentials, key); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("a time JSON cannot carry: %v, want ErrInvalid", err)
	}
	merchant := merchantRecord()
	merchant.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.1/24"}
	if _, err := published.EncodeMerchant(credentials, merchant); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("an allowlist with host bits: %v, want ErrInvalid", err)
	}
}

// The version written is always this program's.
func TestEncodeKey_Version(t *testing.T) {
	record := keyRecord()
	record.Version = 7
	secret, err := published.EncodeKey(credentials, record)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := published.DecodeKey(secret); err != nil || got.Version != 1 {
		t.Errorf("version %d is written (%v), want 1", got.Version, err)
	}
}

func TestDecodeKey_Invalid(t *testing.T) {
	keyFormat.checkInvalid(t, map[string]set{
		"a missing version":             {"version", nil},
		"a version of zero":             {"version", 0},
		"a newer version":               {"version", 2},
		"a version that is text":        {"version", secretWord},
		"no key id":                     {"keyID", nil},
		"a key id that is none":         {"keyID", secretWord},
		"a key id of another object":    {"keyID", "zzzzzzzz2345"},
		"a key id that is a number":     {"keyID", 7},
		"no merchant id":                {"merchantID", nil},
		"a merchant id that is none":    {"merchantID", secretWord},
		"a shown merchant id":           {"merchantID", "mer_merchant2345"},
		"no source":                     {"source", nil},
		"a source without a namespace":  {"source.namespace", nil},
		"a source without a name":       {"source.name", nil},
		"a source without a uid":        {"source.uid", nil},
		"no generation":                 {"generation", nil},
		"a generation of zero":          {"generation", 0},
		"a negative generation":         {"generation", -1},
		"a generation beyond Lua's":     {"generation", 1 << 53},
		"a fraction of a generation":    {"generation", 1.5},
		"a generation that is text":     {"generation", secretWord},
		"no revision":                   {"revision", nil},
		"a revision of zero":            {"revision", 0},
		"a revision beyond Lua's":       {"revision", 1 << 53},
		"no current key":                {"current", nil},
		"no current digest":             {"current.digest", nil},
		"a digest that is none":         {"current.digest", secretWord},
		"a digest in upper case":        {"current.digest", strings.Repeat("A", 64)},
		"a digest of zeros":             {"current.digest", strings.Repeat("0", 64)},
		"no time of creation":           {"current.createdAt", nil},
		"a time that is none":           {"current.createdAt", secretWord},
		"no state":                      {"state", nil},
		"an unknown state":              {"state", secretWord},
		"a merchant's state":            {"state", "Suspended"},
		"an expiry that is none":        {"expiresAt", secretWord},
		"no last rotation":              {"lastRotation", nil},
		"a last rotation without time":  {"lastRotation.time", nil},
		"a last rotation without cause": {"lastRotation.cause", nil},
		"previous that is no list":      {"previous", secretWord},
		"a previous without a digest":   {"previous", []any{map[string]any{"validUntil": issued}}},
		"a previous without an end":     {"previous", []any{map[string]any{"digest": strings.Repeat("a", 64)}}},
		"an empty previous":             {"previous", []any{nil}},
		"too many previous":             {"previous", tooManyPrevious()},
		"a handled digest that is none": {"handledDigest", secretWord},
		"a handled digest of zeros":     {"handledDigest", strings.Repeat("0", 64)},
	})
}

func TestDecodeMerchant_Invalid(t *testing.T) {
	merchantFormat.checkInvalid(t, map[string]set{
		"a missing version":             {"version", nil},
		"a newer version":               {"version", 2},
		"no merchant id":                {"merchantID", nil},
		"a merchant id that is none":    {"merchantID", secretWord},
		"a merchant id of another":      {"merchantID", "zzzzzzzz2345"},
		"no namespace":                  {"namespace", nil},
		"no name":                       {"name", nil},
		"no display name":               {"displayName", nil},
		"no currency":                   {"currency", nil},
		"a currency that is none":       {"currency", secretWord},
		"a currency in lower case":      {"currency", "eur"},
		"no state":                      {"state", nil},
		"an unknown state":              {"state", secretWord},
		"a key's state":                 {"state", "Disabled"},
		"no rate limit":                 {"rateLimit", nil},
		"a rate of zero":                {"rateLimit.requestsPerSecond", 0},
		"a rate beyond its type":        {"rateLimit.requestsPerSecond", 1 << 40},
		"a negative burst":              {"rateLimit.burst", -1},
		"no session settings":           {"sessions", nil},
		"a lifetime of zero":            {"sessions.lifetimeSeconds", 0},
		"a lifetime that is text":       {"sessions.lifetimeSeconds", secretWord},
		"no mismatch policy":            {"sessions.idempotencyMismatch", nil},
		"an unknown mismatch policy":    {"sessions.idempotencyMismatch", secretWord},
		"a webhook without a URL":       {"webhook.url", nil},
		"a removed webhook with a URL":  {"webhook.removedAt", "2026-11-21T09:30:00Z"},
		"a webhook that is text":        {"webhook", secretWord},
		"an unknown allowlist mode":     {"ipAllowlistMode", secretWord},
		"an allowlist that is text":     {"ipAllowlist", "203.0.113.0/24"},
		"an empty entry":                {"ipAllowlist", []any{""}},
		"an entry that is a hostname":   {"ipAllowlist", []any{"203.0.113.0/24", secretWord}},
		"an entry with host bits":       {"ipAllowlist", []any{"203.0.113.1/24"}},
		"an entry with a zone":          {"ipAllowlist", []any{"fe80::1%eth0"}},
		"a block with a zone":           {"ipAllowlist", []any{"fe80::%eth0/64"}},
		"IPv4 in IPv6":                  {"ipAllowlist", []any{"::ffff:198.51.100.7"}},
		"a block of IPv4 in IPv6":       {"ipAllowlist", []any{"::ffff:203.0.113.0/120"}},
		"an entry with a leading zero":  {"ipAllowlist", []any{"203.0.113.007"}},
		"a prefix beyond the address":   {"ipAllowlist", []any{"203.0.113.0/33"}},
		"an entry with spaces around":   {"ipAllowlist", []any{" 203.0.113.7 "}},
		"an address without last octet": {"ipAllowlist", []any{"203.0.113"}},
	})
}

func TestDecode_ErrorNamesTheField(t *testing.T) {
	for field, value := range map[string]any{
		"source.name":       7,
		"current.prefix":    []any{},
		"current.createdAt": nil,
		"generation":        secretWord,
		"state":             secretWord,
		"previous[0]":       []any{nil},
		"lastRotation":      map[string]any{},
	} {
		secret := keyFormat.encoded(t)
		path, _, _ := strings.Cut(field, "[")
		keyFormat.edit(secret, func(data []byte) []byte { return changed(t, data, set{path, value}) })
		if _, err := published.DecodeKey(secret); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error about %s does not name it: %v", field, err)
		}
	}
}

func tooManyPrevious() []any {
	var out []any
	for range published.MaxPrevious + 1 {
		out = append(out, map[string]any{"digest": strings.Repeat("a", 64), "validUntil": issued})
	}
	return out
}

func TestReadableGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want int64
	}{
		"a record whose rest is broken":   {`{"version":1,"keyID":"?","generation":7}`, 7},
		"a record of a newer version":     {`{"version":99,"generation":7,"current":"new shape"}`, 7},
		"no record":                       {``, 0},
		"no JSON":                         {`generation: 7`, 0},
		"no generation":                   {`{}`, 0},
		"a generation that is no number":  {`{"generation":"7"}`, 0},
		"a negative generation":           {`{"generation":-7}`, 0},
		"a generation none can count on":  {`{"generation":9223372036854775807}`, 0},
		"a generation beyond any integer": {`{"generation":1e30}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"record.json": []byte(c.data)}}
			if got := published.ReadableGeneration(secret); got != c.want {
				t.Errorf("ReadableGeneration(%s) = %d, want %d", c.data, got, c.want)
			}
		})
	}
}

func FuzzDecodeKey(f *testing.F) {
	keyFormat.fuzz(f, func(data []byte) *corev1.Secret {
		var named struct {
			KeyID string `json:"keyID"`
		}
		_ = json.Unmarshal(data, &named)
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: published.KeyName(named.KeyID)},
			Type:       published.KeySecretType,
			Data:       map[string][]byte{"record.json": data},
		}
	})
}

func FuzzDecodeMerchant(f *testing.F) {
	merchantFormat.fuzz(f, func(data []byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(merchantID(data))},
			Data:       map[string]string{"merchant.json": string(data)},
		}
	})
}

func FuzzDecodeWebhook(f *testing.F) {
	webhookFormat.fuzz(f, func(data []byte) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: published.WebhookName(merchantID(data))},
			Type:       published.WebhookSecretType,
			Data:       map[string][]byte{"webhook.json": data},
		}
	})
}

// merchantID reads the merchant id of a record, if it has one.
func merchantID(record []byte) string {
	var named struct {
		MerchantID string `json:"merchantID"`
	}
	_ = json.Unmarshal(record, &named)
	return named.MerchantID
}

func BenchmarkDecodeKey(b *testing.B) {
	secret, err := published.EncodeKey("credentials", keyRecord())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.DecodeKey(secret); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeMerchant(b *testing.B) {
	configMap, err := published.EncodeMerchant("credentials", merchantRecord())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.DecodeMerchant(configMap); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeKey(b *testing.B) {
	record := keyRecord()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.EncodeKey("credentials", record); err != nil {
			b.Fatal(err)
		}
	}
}
