package published_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestDecodeKeyRefusesAForeignSecret(t *testing.T) {
	for desc, mutate := range map[string]func(*corev1.Secret){
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
	} {
		t.Run(desc, func(t *testing.T) {
			secret, err := published.EncodeKey(credentials, keyRecord())
			if err != nil {
				t.Fatal(err)
			}
			mutate(secret)
			_, err = published.DecodeKey(secret)
			assertRefused(t, err)
		})
	}
}

func TestDecodeMerchantRefusesAForeignConfigMap(t *testing.T) {
	for desc, mutate := range map[string]func(*corev1.ConfigMap){
		"another name": func(c *corev1.ConfigMap) { c.Name = "merchant-zzzzzzzz2345" },
		"no data":      func(c *corev1.ConfigMap) { c.Data = nil },
		"binary data": func(c *corev1.ConfigMap) {
			c.BinaryData, c.Data = map[string][]byte{"merchant.json": []byte(c.Data["merchant.json"])}, nil
		},
		"words": func(c *corev1.ConfigMap) { c.Data["merchant.json"] = secretWord },
	} {
		t.Run(desc, func(t *testing.T) {
			configMap, err := published.EncodeMerchant(credentials, merchantRecord())
			if err != nil {
				t.Fatal(err)
			}
			mutate(configMap)
			_, err = published.DecodeMerchant(configMap)
			assertRefused(t, err)
		})
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	secret, err := published.EncodeKey(credentials, keyRecord())
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["record.json"] = changed(t, secret.Data["record.json"], set{"current.algorithm", "sha256"})
	secret.Labels["another"] = "label"
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keyRecord(), record); diff != "" {
		t.Errorf("the key record (-want +got):\n%s", diff)
	}

	configMap, err := published.EncodeMerchant(credentials, merchantRecord())
	if err != nil {
		t.Fatal(err)
	}
	configMap.Data["merchant.json"] = string(changed(t, []byte(configMap.Data["merchant.json"]), set{"tier", "gold"}))
	merchant, err := published.DecodeMerchant(configMap)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(merchantRecord(), merchant); diff != "" {
		t.Errorf("the merchant record (-want +got):\n%s", diff)
	}
}

func TestDecodeReadsANewerCauseOfRotation(t *testing.T) {
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

func TestEncodeRefusesWhatAReaderWouldSkip(t *testing.T) {
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

func TestEncodeWritesThisVersion(t *testing.T) {
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
