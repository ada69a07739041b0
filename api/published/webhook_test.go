package published_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestNewWebhookRecord(t *testing.T) {
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme-coffee", UID: "5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1"},
		Spec:       v1alpha1.MerchantSpec{Webhook: &v1alpha1.Webhook{RotationTrigger: "2026-11-21"}},
	}
	record := published.NewWebhookRecord(merchant, issued)
	want := webhookRecord()
	want.MerchantID = "45tolpnyxhz4"
	want.Current.Secret = record.Current.Secret
	want.Retired = nil
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(record.Current.Secret.Key()) != 32 {
		t.Errorf("the secret has %d bytes, want 32", len(record.Current.Secret.Key()))
	}
	if published.NewWebhookRecord(merchant, issued).Current.Secret.Equal(record.Current.Secret) {
		t.Error("two records have one secret")
	}
}

func TestSigningSecrets(t *testing.T) {
	early, late := signingSecret(signingBefore), published.NewSigningSecret()
	record := webhookRecord()
	record.Retired = []published.RetiredSecret{
		{Secret: late, ValidUntil: issued.Add(time.Hour)},
		{Secret: early, ValidUntil: issued.Add(time.Minute)},
	}
	current := record.Current.Secret
	for _, tc := range []struct {
		desc string
		now  time.Time
		want []published.SigningSecret
	}{
		{"both in their overlap", issued, []published.SigningSecret{current, late, early}},
		{"a nanosecond before the first end", issued.Add(time.Minute - 1), []published.SigningSecret{current, late, early}},
		{"at the first end", issued.Add(time.Minute), []published.SigningSecret{current, late}},
		{"after both", issued.Add(2 * time.Hour), []published.SigningSecret{current}},
	} {
		if diff := cmp.Diff(tc.want, record.SigningSecrets(tc.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.desc, diff)
		}
	}
}

// A merchant has a day for each secret it was given, however often they are rotated: up to the bound.
func TestWebhookRecord_Rotated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record, now := webhookRecord(), issued
		record.Retired = nil
		type given struct {
			secret published.SigningSecret
			until  time.Time
		}
		var past []given
		for i := range rapid.IntRange(1, 10).Draw(t, "rotations") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "hours")) * time.Hour)
			past = append(past, given{record.Current.Secret, now.Add(24 * time.Hour)})
			before := record
			record = record.Rotated(strings.Repeat("x", i+1), now)
			if !record.Current.CreatedAt.Equal(now) || record.Current.Secret.Equal(before.Current.Secret) {
				t.Fatal("no fresh secret is in force")
			}
			if record.HandledTrigger != strings.Repeat("x", i+1) || record.Source != before.Source || record.MerchantID != before.MerchantID {
				t.Fatalf("the rest of the record is %+v", record)
			}
			want := []published.SigningSecret{record.Current.Secret}
			for _, g := range slices.Backward(past) {
				if now.Before(g.until) && len(want) <= published.MaxRetired {
					want = append(want, g.secret)
				}
			}
			if diff := cmp.Diff(want, record.SigningSecrets(now)); diff != "" {
				t.Fatalf("what signs at %s (-want +got):\n%s", now, diff)
			}
		}
		if _, err := published.EncodeWebhook(credentials, record); err != nil {
			t.Fatalf("the record cannot be written: %v", err)
		}
	})
}

func TestDecodeWebhook_Invalid(t *testing.T) {
	retired := func(n int) []any {
		return slices.Repeat([]any{map[string]any{"secret": signingBefore, "validUntil": issued}}, n)
	}
	webhookFormat.checkInvalid(t, map[string]set{
		"a missing version":             {"version", nil},
		"a newer version":               {"version", 2},
		"no merchant id":                {"merchantID", nil},
		"a merchant id that is none":    {"merchantID", secretWord},
		"a merchant id of another":      {"merchantID", "zzzzzzzz2345"},
		"no source":                     {"source", nil},
		"a source without a namespace":  {"source.namespace", nil},
		"a source without a name":       {"source.name", nil},
		"a source without a uid":        {"source.uid", nil},
		"no current secret":             {"current", nil},
		"an empty secret":               {"current.secret", ""},
		"a secret that is none":         {"current.secret", secretWord},
		"a secret that is a number":     {"current.secret", 7},
		"no time of creation":           {"current.createdAt", nil},
		"a time that is none":           {"current.createdAt", secretWord},
		"retired that is no list":       {"retired", secretWord},
		"a retired without a secret":    {"retired", []any{map[string]any{"validUntil": issued}}},
		"a retired without an end":      {"retired", []any{map[string]any{"secret": signingBefore}}},
		"a retired that is none":        {"retired", []any{map[string]any{"secret": secretWord, "validUntil": issued}}},
		"too many retired":              {"retired", retired(published.MaxRetired + 1)},
		"a handled trigger of no words": {"handledTrigger", 7},
	})
}

func TestDecodeWebhook_ForeignSecret(t *testing.T) {
	webhookFormat.checkForeign(t, map[string]func(*corev1.Secret){
		"another name":     func(s *corev1.Secret) { s.Name = "webhook-zzzzzzzz2345" },
		"a key's type":     func(s *corev1.Secret) { s.Type = published.KeySecretType },
		"an Opaque Secret": func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"no data":          func(s *corev1.Secret) { s.Data = nil },
		"words":            func(s *corev1.Secret) { s.Data["webhook.json"] = []byte(secretWord) },
	})
}
