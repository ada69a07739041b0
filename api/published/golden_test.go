package published_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// The golden files are what running programs have written. When one of these tests fails, replicas
// of the version before could misread the new records: keep the format, or raise the version.

func TestKeyRecordKeepsItsWireFormat(t *testing.T) {
	golden := readGolden(t, "record.json")
	secret, err := published.EncodeKey(credentials, keyRecord())
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "key-abcdefgh2345",
			Labels:    map[string]string{"merchant-operator.io/published": "key"},
		},
		Type: "merchant-operator.io/api-key",
		Data: map[string][]byte{"record.json": golden},
	}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("the published Secret (-want +got):\n%s", diff)
	}
	decoded, err := published.DecodeKey(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keyRecord(), decoded); diff != "" {
		t.Errorf("the record read from the golden file (-want +got):\n%s", diff)
	}
}

func TestMerchantRecordKeepsItsWireFormat(t *testing.T) {
	golden := readGolden(t, "merchant.json")
	configMap, err := published.EncodeMerchant(credentials, merchantRecord())
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "merchant-merchant2345",
			Labels:    map[string]string{"merchant-operator.io/published": "merchant"},
		},
		Data: map[string]string{"merchant.json": string(golden)},
	}
	if diff := cmp.Diff(want, configMap); diff != "" {
		t.Errorf("the published ConfigMap (-want +got):\n%s", diff)
	}
	decoded, err := published.DecodeMerchant(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(merchantRecord(), decoded); diff != "" {
		t.Errorf("the record read from the golden file (-want +got):\n%s", diff)
	}
}

func TestWebhookRecordKeepsItsWireFormat(t *testing.T) {
	golden := readGolden(t, "webhook.json")
	secret, err := published.EncodeWebhook(credentials, webhookRecord())
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "webhook-merchant2345",
			Labels:    map[string]string{"merchant-operator.io/published": "webhook"},
		},
		Type: "merchant-operator.io/webhook",
		Data: map[string][]byte{"webhook.json": golden},
	}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("the published Secret (-want +got):\n%s", diff)
	}
	decoded, err := published.DecodeWebhook(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(webhookRecord(), decoded); diff != "" {
		t.Errorf("the record read from the golden file (-want +got):\n%s", diff)
	}
}

// A record of an operator that did not write the Merchant's UID yet is still that merchant's.
func TestMerchantRecordWithoutUID(t *testing.T) {
	configMap, err := published.EncodeMerchant(credentials, merchantRecord())
	if err != nil {
		t.Fatal(err)
	}
	configMap.Data["merchant.json"] = string(changed(t, []byte(configMap.Data["merchant.json"]), set{"uid", nil}))
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

// readGolden returns the file without the white space that makes it readable.
func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return compact.Bytes()
}
