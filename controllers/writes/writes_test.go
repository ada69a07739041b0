package writes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

const credentials = "credentials"

var now = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// The record of a newer version stays until the caller has written the tombstone, and opens nothing meanwhile.
func TestDisableKey_NextVersion(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: credentials, Name: published.KeyName("abcdefgh2345"), UID: "1"}, Type: published.KeySecretType,
		Data: map[string][]byte{"record.json": []byte(`{
			"version": 2, "keyID": "abcdefgh2345", "merchantID": "merchant2345", "source": {"namespace": "shops", "name": "till", "uid": "7"},
			"generation": 1, "revision": 1767225600000,
			"current": {"digest": "` + apikey.NewDigest("till").Hex() + `", "createdAt": "2026-01-01T00:00:00Z"}, "state": "Active", "lastRotation": 7}`)},
	}
	stored := fake.NewClientBuilder().WithObjects(secret).Build()
	for range 2 { // the second time there is nothing to do
		read(t, stored, secret)
		if err := DisableKey(t.Context(), stored, secret, now); err != nil {
			t.Fatal(err)
		}
	}
	version := secret.ResourceVersion
	read(t, stored, secret)
	if record, err := published.DecodeKeyEnvelope(secret); err != nil || !record.Revoked || secret.ResourceVersion != version {
		t.Errorf("revoked %t, %v; version %s, want %s", record.Revoked, err, secret.ResourceVersion, version)
	}
}

// The same for a merchant.
func TestCloseMerchant_NextVersion(t *testing.T) {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: credentials, Name: published.MerchantName("merchant2345"), UID: "1"},
		Data: map[string]string{"merchant.json": `{
			"version": 2, "merchantID": "merchant2345", "namespace": "shops", "name": "coffee", "state": "Active", "rateLimit": 50}`},
	}
	stored := fake.NewClientBuilder().WithObjects(configMap).Build()
	for range 2 {
		read(t, stored, configMap)
		if err := CloseMerchant(t.Context(), stored, configMap); err != nil {
			t.Fatal(err)
		}
	}
	version := configMap.ResourceVersion
	read(t, stored, configMap)
	if record, err := published.DecodeMerchantEnvelope(configMap); err != nil || !record.Revoked || configMap.ResourceVersion != version {
		t.Errorf("revoked %t, %v; version %s, want %s", record.Revoked, err, configMap.ResourceVersion, version)
	}
}

func read(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
}
