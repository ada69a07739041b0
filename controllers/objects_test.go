package controllers

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// merchantBuilder builds a Merchant; keyBuilder builds an ApiKey. Each starts with the least a
// manifest needs.
type (
	merchantBuilder struct{ *v1alpha1.Merchant }
	keyBuilder      struct{ *v1alpha1.ApiKey }
)

func aMerchant(name string) merchantBuilder {
	return merchantBuilder{&v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme " + name},
	}}
}

func (b merchantBuilder) state(state v1alpha1.MerchantState) merchantBuilder {
	b.Spec.State = state
	return b
}

func (b merchantBuilder) webhook(edits ...func(*v1alpha1.Webhook)) merchantBuilder {
	b.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	for _, edit := range edits {
		edit(b.Spec.Webhook)
	}
	return b
}

func aKey(name, merchant string) keyBuilder {
	return keyBuilder{&v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
	}}
}

func (b keyBuilder) deliveredAs(secret string) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{SecretName: secret}
	return b
}

func (b keyBuilder) retained(d time.Duration) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: new(int32(d / time.Second))}
	return b
}

func (b keyBuilder) trigger(trigger string) keyBuilder {
	b.Spec.Rotation.Trigger = trigger
	return b
}

func (b keyBuilder) overlap(d time.Duration) keyBuilder {
	b.Spec.Rotation.OverlapSeconds = new(int32(d / time.Second))
	return b
}

func (b keyBuilder) every(d time.Duration) keyBuilder {
	b.Spec.Rotation.EverySeconds = new(int32(d / time.Second))
	return b
}

func (b keyBuilder) digest(digest apikey.Digest) keyBuilder {
	b.Spec.KeyDigest = digest.Hex()
	return b
}

func (b keyBuilder) expires(at time.Time) keyBuilder {
	b.Spec.ExpiresAt = &metav1.Time{Time: at}
	return b
}

func (b keyBuilder) annotated(name, value string) keyBuilder {
	b.Labels = map[string]string{name: value}
	b.Annotations = map[string]string{name: value}
	return b
}
