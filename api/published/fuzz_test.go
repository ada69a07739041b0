package published_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

func FuzzDecodeKey(f *testing.F) {
	addSeeds(f, "record.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		// The name is made to fit, so that mutation reaches the record behind it.
		var named struct {
			KeyID string `json:"keyID"`
		}
		_ = json.Unmarshal(data, &named)
		record, err := published.DecodeKey(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: published.KeyName(named.KeyID)},
			Type:       published.KeySecretType,
			Data:       map[string][]byte{"record.json": data},
		})
		if err != nil {
			assertInvalid(t, err)
			return
		}
		secret, err := published.EncodeKey(credentials, record)
		if err != nil {
			t.Fatalf("an accepted record cannot be written: %v", err)
		}
		again, err := published.DecodeKey(secret)
		if err != nil {
			t.Fatalf("an accepted record cannot be read again: %v", err)
		}
		if diff := cmp.Diff(record, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}

func FuzzDecodeMerchant(f *testing.F) {
	addSeeds(f, "merchant.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		var named struct {
			MerchantID string `json:"merchantID"`
		}
		_ = json.Unmarshal(data, &named)
		record, err := published.DecodeMerchant(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(named.MerchantID)},
			Data:       map[string]string{"merchant.json": string(data)},
		})
		if err != nil {
			assertInvalid(t, err)
			return
		}
		configMap, err := published.EncodeMerchant(credentials, record)
		if err != nil {
			t.Fatalf("an accepted record cannot be written: %v", err)
		}
		again, err := published.DecodeMerchant(configMap)
		if err != nil {
			t.Fatalf("an accepted record cannot be read again: %v", err)
		}
		if diff := cmp.Diff(record, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}

func FuzzDecodeWebhook(f *testing.F) {
	addSeeds(f, "webhook.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		var named struct {
			MerchantID string `json:"merchantID"`
		}
		_ = json.Unmarshal(data, &named)
		record, err := published.DecodeWebhook(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: published.WebhookName(named.MerchantID)},
			Type:       published.WebhookSecretType,
			Data:       map[string][]byte{"webhook.json": data},
		})
		if err != nil {
			assertInvalid(t, err)
			return
		}
		secret, err := published.EncodeWebhook(credentials, record)
		if err != nil {
			t.Fatalf("an accepted record cannot be written: %v", err)
		}
		again, err := published.DecodeWebhook(secret)
		if err != nil {
			t.Fatalf("an accepted record cannot be read again: %v", err)
		}
		if diff := cmp.Diff(record, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}

func addSeeds(f *testing.F, golden string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", golden))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	for _, seed := range []string{"", "null", "{}", "[]", `{"version":1}`, `{"version":2}`, `{"version":"1"}`, "\xff\x00"} {
		f.Add([]byte(seed))
	}
}

func assertInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, published.ErrInvalid) {
		t.Fatalf("error %v does not wrap ErrInvalid", err)
	}
}
