package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// squat puts somebody else's Secret under a name.
func (w *world) squat(name string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"password": []byte("x")}}
	w.apply(secret)
	return secret
}

// awaitNoSecret waits until the tenant has no Secret of that name.
func (w *world) awaitNoSecret(name string) {
	GinkgoHelper()
	Eventually(func() any { return w.secret(w.namespace, name) }).Should(BeNil(), "Secret %s is gone", name)
}

var _ = Describe("A delivery", func() {
	It("never touches somebody else's Secret, and happens once the name is free", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		foreign := w.squat("till-key")
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(w.publishedSecret(key)).To(BeNil(), "no key was made")
		Expect(w.secret(w.namespace, "till-key")).To(Equal(foreign))
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("Warning SecretConflict:")))

		w.delete(foreign)
		w.poke(key, "apikey") // it looks by itself as well, once a minute
		w.awaitReady(key)
		Expect(w.live(w.record(key), w.delivered("till-key"))).To(BeTrue())
	})

	It("that cannot be made does not keep the old key from being disabled", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		w.squat("taken")
		change(w, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "taken"}
			k.Spec.Rotation.Trigger = "b"
			k.Spec.State = v1alpha1.ApiKeyDisabled
		})
		w.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		record := w.record(key)
		Expect(record.Generation).To(BeEquivalentTo(1))
		Expect(record.State).To(Equal(v1alpha1.ApiKeyDisabled))
		Expect(record.HandledTrigger).To(BeEmpty(), "the rotation is still to come")
		Expect(w.secret(w.namespace, "till-key")).NotTo(BeNil())
	})

	It("moves with its name, and the key stays", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		plaintext, record := w.delivered("till-key"), w.record(key)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		w.awaitReady(key)
		w.awaitNoSecret("till-key")
		Expect(w.delivered("moved").Digest().Equal(plaintext.Digest())).To(BeTrue())
		Expect(w.record(key)).To(Equal(record))
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("DeliveryMoved")))
	})

	It("waits with its move for a name that is taken", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		plaintext, foreign := w.delivered("till-key"), w.squat("taken")
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "taken"} })
		w.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(w.delivered("till-key").Digest().Equal(plaintext.Digest())).To(BeTrue())
		w.delete(foreign)
		w.poke(key, "apikey")
		w.awaitReady(key)
		Expect(w.delivered("taken").Digest().Equal(plaintext.Digest())).To(BeTrue())
	})

	It("does not pass on what somebody put in the key's place", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		change(w, w.secret(w.namespace, "till-key"), func(s *secretObject) { s.Data["apiKey"] = []byte("rubbish") })
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		w.awaitReady(key)
		w.awaitNoSecret("till-key")
		Expect(w.secret(w.namespace, "moved")).To(BeNil())
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("Warning NotDelivered:")))
	})

	It("that a person removed is not repeated, and rotates nothing", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		record := w.record(key)
		w.delete(w.secret(w.namespace, "till-key"))
		w.poke(key, "apikey")
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())
		Expect(w.record(key)).To(Equal(record))

		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("Warning NotDelivered:")))
		w.awaitReady(key)
		Expect(w.secret(w.namespace, "moved")).To(BeNil())
		Expect(w.record(key)).To(Equal(record))
	})

	It("ends by itself after the time it is to be retained, and the key goes on", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").retained(time.Second))
		record := w.record(key)
		w.awaitNoSecret("till-key")
		Expect(w.record(key)).To(Equal(record))
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("RetentionEnded")))
	})
})

var _ = Describe("The end of an ApiKey", func() {
	It("takes its published and its delivered Secret with it, and nothing else", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key, other := w.key(aKey("till", "coffee")), w.key(aKey("web", "coffee"))
		w.delete(key)
		w.awaitGone(key)
		Expect(w.publishedSecret(key)).To(BeNil())
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())
		Expect(w.live(w.record(other), w.delivered("web-key"))).To(BeTrue())
	})

	It("leaves a Secret that is not its own", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		foreign := w.squat("till-key")
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		w.delete(key)
		w.awaitGone(key)
		Expect(w.secret(w.namespace, "till-key")).To(Equal(foreign))
	})

	It("also takes a published Secret that cannot be read and a delivered one that lost its label", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		w.stop()
		change(w, w.publishedSecret(key), func(s *secretObject) { s.Data["record.json"], s.Labels = []byte("{"), nil })
		change(w, w.secret(w.namespace, "till-key"), func(s *secretObject) { s.Labels = nil })
		w.delete(key)
		w.restart()
		w.awaitGone(key)
		Expect(w.publishedSecret(key)).To(BeNil())
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())
	})

	It("does not wait for a Merchant", func() {
		w := newWorld()
		key := aKey("till", "nobody").ApiKey
		w.apply(key)
		w.awaitWaiting(key)
		Expect(w.kube.Delete(context.Background(), key)).To(Succeed())
		w.awaitGone(key)
	})
})
