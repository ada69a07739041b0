package merchants

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

func withWebhook() *v1alpha1.Merchant {
	m := merchant()
	m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks", RotationTrigger: "a"}
	m.Status.WebhookSecretName = "coffee-webhook"
	return m
}

// upToDate are the facts of a Merchant with a webhook at rest: everything is published, delivered and
// reported.
func upToDate(t *testing.T) facts {
	t.Helper()
	f := facts{now: now, merchant: withWebhook(), namespace: "credentials"}
	configMap, err := published.EncodeMerchant(f.namespace, published.NewMerchantRecord(f.merchant))
	if err != nil {
		t.Fatal(err)
	}
	f.configMap, f.publishedWebhook = configMap, published.NewMerchantRecord(f.merchant).Webhook
	f = signedWith(t, f, published.NewWebhookRecord(f.merchant, now.Add(-time.Hour)))
	return copied(f, "coffee-webhook")
}

// signedWith publishes the record.
func signedWith(t *testing.T, f facts, record published.WebhookRecord) facts {
	t.Helper()
	secret, err := published.EncodeWebhook(f.namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	f.signing, f.record = secret, &record
	return f
}

// copied delivers the record in force under a name, which is the one that the spec gives or a former one.
func copied(f facts, name string) facts {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"merchant-operator.io/delivered": "webhook"}},
		Data:       map[string][]byte{"secret": []byte(f.record.Current.Secret.Reveal())},
	}
	f.target = nil
	if name == f.targetName() {
		f.target = secret
	}
	f.delivered = []metav1.ObjectMeta{secret.ObjectMeta}
	return f
}
