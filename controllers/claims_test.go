package controllers

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var vaultDigest = apikey.DigestOf("a key from a vault, with 32 characters or more")

// claim returns the claim to a digest; nil: there is none.
func (w *world) claim(digest apikey.Digest) *published.DigestClaim {
	GinkgoHelper()
	secret := w.secret(w.credentials, published.DigestClaimName(digest))
	if secret == nil {
		return nil
	}
	claim, err := published.DecodeDigestClaim(secret)
	Expect(err).NotTo(HaveOccurred())
	return &claim
}

// twoTenants starts an operator for two namespaces with a Merchant coffee in each. The second one's
// objects are applied inside as.
func twoTenants() (w *world, as func(func())) {
	GinkgoHelper()
	w = newWorld()
	w.stop()
	home, other := w.namespace, w.newNamespace("rivals-")
	w.startOperator(func(o *Options) { o.WatchNamespaces = []string{home, other} })
	as = func(act func()) {
		GinkgoHelper()
		w.namespace = other
		defer func() { w.namespace = home }()
		act()
	}
	w.merchant(aMerchant("coffee"))
	as(func() { w.merchant(aMerchant("coffee")) })
	return w, as
}

var _ = Describe("The digest of an externally generated key", func() {
	It("is claimed by the first ApiKey, and opens nothing for a second one", func() {
		w, as := twoTenants()
		owner := w.key(aKey("till", "coffee").digest(vaultDigest))
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(owner.UID))
		Expect(w.claim(vaultDigest).KeyID).To(Equal(published.ID(owner.UID)))

		thief := aKey("thief", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			w.apply(thief)
			w.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(w.publishedSecret(thief)).To(BeNil())
		Expect(readyMessage(thief)).NotTo(ContainSubstring(w.namespace), "it names no other tenant's object")
		Expect(readyMessage(thief)).NotTo(ContainSubstring("till"))

		// Whatever happens to the owner: a rotation over HTTP, a disabled state, its end.
		w.rotateOverHTTP(owner)
		w.awaitGeneration(owner, 2)
		change(w, owner, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		w.awaitReady(owner)
		w.delete(owner)
		w.awaitGone(owner)
		as(func() {
			w.poke(thief, "apikey")
			w.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(w.publishedSecret(thief)).To(BeNil())
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(owner.UID))
	})

	It("comes back to an ApiKey that is deleted and created again, and to no other tenant's of its name", func() {
		w, as := twoTenants()
		first := w.key(aKey("till", "coffee").digest(vaultDigest))
		w.delete(first)
		w.awaitGone(first)
		rival := aKey("till", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			w.apply(rival)
			w.awaitStalled(rival, v1alpha1.ReasonKeyDigestClaimed)
		})

		second := w.key(aKey("till", "coffee").digest(vaultDigest))
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(second.UID))
		Expect(w.claim(vaultDigest).KeyID).To(Equal(published.ID(second.UID)))
		Expect(w.record(second).Current.Digest.Equal(vaultDigest)).To(BeTrue())
	})

	It("whose claim somebody removed is claimed again by its owner, and by nobody else meanwhile", func() {
		w, as := twoTenants()
		owner := w.key(aKey("till", "coffee").digest(vaultDigest))
		w.stop()
		Expect(w.kube.Delete(context.Background(), w.secret(w.credentials, published.DigestClaimName(vaultDigest)))).To(Succeed())
		thief := aKey("thief", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			w.apply(thief)
			// This operator does not manage the owner, and so cannot claim for it.
			w.startOperator()
			w.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(w.claim(vaultDigest)).To(BeNil())
		w.stop()
		w.startOperator()
		Eventually(func() *published.DigestClaim { return w.claim(vaultDigest) }).ShouldNot(BeNil())
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(owner.UID))

		Expect(w.kube.Delete(context.Background(), w.secret(w.credentials, published.DigestClaimName(vaultDigest)))).To(Succeed())
		Eventually(func() *published.DigestClaim { return w.claim(vaultDigest) }).ShouldNot(BeNil(), "while the operator runs")
		Expect(w.record(owner).Generation).To(BeEquivalentTo(1))
	})

	It("is published once when two operators race for it", func() {
		w, as := twoTenants()
		w.stop()
		home := w.namespace
		var other string
		as(func() { other = w.namespace })
		mine, theirs := aKey("till", "coffee").digest(vaultDigest).ApiKey, aKey("till", "coffee").digest(vaultDigest).ApiKey
		w.apply(mine)
		as(func() { w.apply(theirs) })
		w.startOperator(func(o *Options) { o.WatchNamespaces = []string{home} })
		stopFirst := w.stop
		DeferCleanup(func() { stopFirst() })
		w.startOperator(func(o *Options) { o.WatchNamespaces = []string{other} })

		reasons := func(g Gomega) []string {
			var got []string
			for _, key := range []*v1alpha1.ApiKey{mine, theirs} {
				g.Expect(w.kube.Get(context.Background(), client.ObjectKeyFromObject(key), key)).To(Succeed())
				got = append(got, readyReason(key))
			}
			return got
		}
		Eventually(reasons).Should(ConsistOf(v1alpha1.ReasonPublished, v1alpha1.ReasonKeyDigestClaimed))
		winner, loser := mine, theirs
		if readyReason(mine) != v1alpha1.ReasonPublished {
			winner, loser = theirs, mine
		}
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(winner.UID))
		Expect(w.publishedSecret(winner)).NotTo(BeNil())
		Expect(w.publishedSecret(loser)).To(BeNil())
	})

	It("that another has claimed does not replace the key in force", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		w.key(aKey("owner", "coffee").digest(vaultDigest))
		mine := apikey.DigestOf("another key from a vault, of 32 characters")
		key := w.key(aKey("till", "coffee").digest(mine))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = vaultDigest.Hex() })
		w.awaitStalled(key, v1alpha1.ReasonKeyDigestClaimed)
		Expect(w.record(key).Current.Digest.Equal(mine)).To(BeTrue())
		Expect(w.record(key).Generation).To(BeEquivalentTo(1))

		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = mine.Hex() })
		w.awaitReady(key)
		Expect(w.record(key).Generation).To(BeEquivalentTo(1))
	})

	It("stays claimed when its ApiKey has another, and no ApiKey claims without end", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(vaultDigest))
		for i := range 31 {
			next := apikey.DigestOf(fmt.Sprintf("key %d from a vault, with 32 characters", i))
			change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = next.Hex() })
			w.awaitGeneration(key, int64(i)+2)
		}
		Expect(w.claim(vaultDigest).Source.UID).To(Equal(key.UID))
		change(w, key, func(k *v1alpha1.ApiKey) {
			k.Spec.KeyDigest = apikey.DigestOf("one key too many, with 32 characters").Hex()
		})
		w.awaitStalled(key, v1alpha1.ReasonTooManyKeyDigests)
		Expect(w.record(key).Generation).To(BeEquivalentTo(32), "the key in force goes on")

		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = vaultDigest.Hex() })
		w.awaitGeneration(key, 33)
	})
})

// tombstone returns what remembers the end of an object; nil: nothing does.
func (w *world) tombstone(name string) *published.Tombstone {
	GinkgoHelper()
	var configMap corev1.ConfigMap
	err := w.kube.Get(context.Background(), client.ObjectKey{Namespace: w.credentials, Name: name}, &configMap)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	tombstone, err := published.DecodeTombstone(&configMap)
	Expect(err).NotTo(HaveOccurred())
	return &tombstone
}

var _ = Describe("The end of an object", func() {
	It("is remembered for 90 days, and so is the claim of an ApiKey", func() {
		w := newWorld()
		coffee := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(vaultDigest))
		merchantName, keyName := published.MerchantTombstoneName(published.ID(coffee.UID)), published.KeyTombstoneName(published.ID(key.UID))
		Expect(w.tombstone(merchantName)).To(BeNil())
		Expect(w.tombstone(keyName)).To(BeNil())
		w.delete(key)
		w.awaitGone(key)
		w.delete(coffee)
		w.awaitGone(coffee)
		Expect(w.tombstone(keyName).Source).To(Equal(published.Source{Namespace: w.namespace, Name: "till", UID: key.UID}))
		Expect(w.tombstone(merchantName).Source).To(Equal(published.Source{Namespace: w.namespace, Name: "coffee", UID: coffee.UID}))

		w.clock.advance(90*24*time.Hour - time.Minute)
		seen := passes("tombstone")
		w.restart()
		Eventually(func() int { return passes("tombstone") }).Should(BeNumerically(">=", seen+2))
		Expect(w.tombstone(keyName)).NotTo(BeNil())
		Expect(w.tombstone(merchantName)).NotTo(BeNil())
		Expect(w.claim(vaultDigest)).NotTo(BeNil())

		w.clock.advance(time.Minute)
		w.restart()
		Eventually(func() *published.Tombstone { return w.tombstone(merchantName) }).Should(BeNil())
		Eventually(func() *published.Tombstone { return w.tombstone(keyName) }).Should(BeNil())
		Expect(w.claim(vaultDigest)).To(BeNil())
	})

	It("is remembered when it went without its finalizer", func() {
		w := newWorld()
		coffee := w.merchant(aMerchant("coffee").webhook())
		key := w.key(aKey("till", "coffee").digest(vaultDigest))
		w.stop()
		w.tearOut(key)
		w.tearOut(coffee)
		w.delete(w.publishedSecret(key)) // the claim alone tells of it
		w.startOperator()
		Eventually(func() *published.Tombstone { return w.tombstone(published.KeyTombstoneName(published.ID(key.UID))) }).ShouldNot(BeNil())
		Eventually(func() *published.Tombstone {
			return w.tombstone(published.MerchantTombstoneName(published.ID(coffee.UID)))
		}).ShouldNot(BeNil())
	})

	It("comes although the credentials namespace is being deleted", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		namespace := &corev1.Namespace{}
		namespace.Name = w.credentials
		w.delete(namespace)
		w.delete(key)
		w.awaitGone(key)
	})
})
