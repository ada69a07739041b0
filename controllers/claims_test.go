package controllers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

var vaultDigest = apikey.NewDigest("a key from a vault, with 32 characters or more")

var otherDigest = apikey.NewDigest("another key from a vault, of 32 characters")

// claim returns the claim to a digest; nil: there is none.
func (f *fixture) claim(digest apikey.Digest) *published.DigestClaim {
	GinkgoHelper()
	secret := f.secret(f.credentials, published.DigestClaimName(digest))
	if secret == nil {
		return nil
	}
	claim, err := published.DecodeDigestClaim(secret)
	Expect(err).NotTo(HaveOccurred())
	return &claim
}

// twoTenants starts an operator for two namespaces with a Merchant coffee in each. The second one's
// objects are applied inside as.
func twoTenants() (f *fixture, as func(func())) {
	GinkgoHelper()
	f = newFixture()
	f.stop()
	home, other := f.namespace, f.newNamespace("rivals-")
	f.startOperator(func(o *Options) { o.WatchNamespaces = []string{home, other} })
	as = func(do func()) {
		GinkgoHelper()
		f.namespace = other
		defer func() { f.namespace = home }()
		do()
	}
	f.merchant(aMerchant("coffee"))
	as(func() { f.merchant(aMerchant("coffee")) })
	return f, as
}

var _ = Describe("The digest of an externally generated key", func() {
	It("is claimed by the first ApiKey, and opens nothing for a second one", func() {
		f, as := twoTenants()
		owner := f.key(aKey("till", "coffee").digest(vaultDigest))
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(owner.UID))
		Expect(f.claim(vaultDigest).KeyID).To(Equal(published.ID(owner.UID)))

		thief := aKey("thief", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			f.apply(thief)
			f.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(f.publishedSecret(thief)).To(BeNil())
		Expect(readyMessage(thief)).NotTo(ContainSubstring(f.namespace), "it names no other tenant's object")
		Expect(readyMessage(thief)).NotTo(ContainSubstring("till"))

		// Whatever happens to the owner: a rotation over HTTP, a disabled state, its end.
		f.rotateOverHTTP(owner)
		f.awaitGeneration(owner, 2)
		change(f, owner, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitUnusable(owner, v1alpha1.ReasonDisabled)
		f.delete(owner)
		f.awaitGone(owner)
		as(func() {
			f.poke(thief, "apikey")
			f.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(f.publishedSecret(thief)).To(BeNil())
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(owner.UID))
	})

	It("comes back to an ApiKey that is deleted and created again, and to no other tenant's of its name", func() {
		f, as := twoTenants()
		first := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.delete(first)
		f.awaitGone(first)
		rival := aKey("till", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			f.apply(rival)
			f.awaitStalled(rival, v1alpha1.ReasonKeyDigestClaimed)
		})

		second := f.key(aKey("till", "coffee").digest(vaultDigest))
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(second.UID))
		Expect(f.claim(vaultDigest).KeyID).To(Equal(published.ID(second.UID)))
		Expect(f.record(second).Current.Digest.Equal(vaultDigest)).To(BeTrue())
	})

	DescribeTable("that was rotated away does not come back with an ApiKey that is deleted and created again",
		func(rotate func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee").digest(vaultDigest).overlap(0))
			rotate(f, key)
			Eventually(func() int64 { return f.record(key).Generation }).Should(BeEquivalentTo(2))
			f.delete(key)
			f.restart()
			f.awaitGone(key)

			again := aKey("till", "coffee").digest(vaultDigest).ApiKey
			f.apply(again)
			f.awaitStalled(again, v1alpha1.ReasonKeyDigestUsed)
			Expect(f.publishedSecret(again)).To(BeNil())
			Expect(f.claim(vaultDigest).Replaced).To(BeTrue())
			change(f, again, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = otherDigest.Hex() })
			f.awaitReady(again)
			Expect(f.record(again).Current.Digest.Equal(otherDigest)).To(BeTrue(), "the current one does, if there is one")
		},
		Entry("by another spec.keyDigest", func(f *fixture, key *v1alpha1.ApiKey) {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = otherDigest.Hex() })
		}),
		Entry("by a generated key", func(f *fixture, key *v1alpha1.ApiKey) {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "" })
		}),
		Entry("over HTTP", func(f *fixture, key *v1alpha1.ApiKey) { f.rotateOverHTTP(key) }),
		Entry("over HTTP, while the operator was away until the deletion", func(f *fixture, key *v1alpha1.ApiKey) {
			f.stop()
			f.rotateOverHTTP(key)
		}),
	)

	DescribeTable("that a person rotates away during the deletion does not come back with an ApiKey that is created again",
		func(finalizers []string) {
			var f *fixture
			var key *v1alpha1.ApiKey
			var once sync.Once
			hook := interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if key != nil && object.GetName() == published.KeyTombstoneName(published.ID(key.UID)) {
						once.Do(func() { f.rotateOverHTTP(key) }) // on the internal port a disabled key can be rotated
					}
					return c.Create(ctx, object, options...)
				},
			}
			f = newFixture()
			f.merchant(aMerchant("coffee"))
			till := f.key(aKey("till", "coffee").digest(vaultDigest))
			f.stop()
			change(f, till, func(k *v1alpha1.ApiKey) { k.Finalizers = finalizers })
			f.delete(till)
			key = till.DeepCopy()
			f.startOperator(hooked(hook))
			f.awaitGone(till)
			Eventually(func() any { return f.publishedSecret(key) }).Should(BeNil())

			again := aKey("till", "coffee").digest(vaultDigest).ApiKey
			f.apply(again)
			f.awaitStalled(again, v1alpha1.ReasonKeyDigestUsed)
		},
		Entry("by the operator", []string{v1alpha1.Finalizer}),
		Entry("without its finalizer", nil),
	)

	It("that was rotated away does not come back with an ApiKey that is created again after a restore of etcd", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		backup, claim := f.record(key), f.secret(f.credentials, published.DigestClaimName(vaultDigest))
		claim.ResourceVersion, claim.UID = "", ""
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		Eventually(func() bool { return f.claim(vaultDigest).Replaced }).Should(BeTrue())
		f.stop()
		backup.Superseded, backup.NewerIssued = true, f.record(key).Order().Issued // by the API, which knows the newest key
		f.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		f.delete(f.secret(f.credentials, claim.Name))
		Expect(f.kube.Create(context.Background(), claim)).To(Succeed())

		f.startOperator()
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		f.delete(key)
		f.awaitGone(key)
		again := aKey("till", "coffee").digest(vaultDigest).ApiKey
		f.apply(again)
		f.awaitStalled(again, v1alpha1.ReasonKeyDigestUsed)
		Expect(f.publishedSecret(again)).To(BeNil())
	})

	It("comes back to an ApiKey that a backup restored with another UID, and has never two records", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		first := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.stop()
		f.tearOut(first)
		f.tearOut(coffee)
		f.apply(aMerchant("coffee").Merchant)
		second := aKey("till", "coffee").digest(vaultDigest).ApiKey
		f.apply(second)
		former, next := published.KeyName(published.ID(first.UID)), published.KeyName(published.ID(second.UID))
		var together atomic.Bool // replicas give a digest of two records to the one that had it first, which goes
		reported, report := context.WithCancel(context.Background())
		defer report()
		f.startOperator(hooked(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				if object.GetName() == former { // it goes late, after the first try to publish the next one
					select {
					case <-reported.Done():
					case <-ctx.Done():
					}
				}
				return c.Update(ctx, object, options...)
			},
			SubResourceApply: func(
				ctx context.Context, c client.Client, subresource string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption,
			) error {
				if _, ok := object.(*v1alpha1ac.ApiKeyApplyConfiguration); ok {
					defer report()
				}
				return c.SubResource(subresource).Apply(ctx, object, options...)
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if object.GetName() == next && f.secret(f.credentials, former) != nil {
					together.Store(true)
				}
				return c.Create(ctx, object, options...)
			},
		}))
		f.awaitReady(second)
		Expect(f.record(second).Current.Digest.Equal(vaultDigest)).To(BeTrue())
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(second.UID))
		Expect(together.Load()).To(BeFalse(), "the record of the former ApiKey was still published")
	})

	It("that another ApiKey has claimed in a new cluster is free when a person deletes that ApiKey and the claim", func() {
		f, as := twoTenants()
		var thief *v1alpha1.ApiKey
		as(func() { thief = f.key(aKey("thief", "coffee").digest(vaultDigest)) })
		owner := aKey("till", "coffee").digest(vaultDigest).ApiKey
		f.apply(owner)
		f.awaitStalled(owner, v1alpha1.ReasonKeyDigestClaimed)
		f.delete(thief)
		f.awaitGone(thief)
		f.delete(f.secret(f.credentials, published.DigestClaimName(vaultDigest)))
		f.awaitReady(owner)
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(owner.UID))
	})

	It("whose claim somebody removed is claimed again by its owner, and by nobody else meanwhile", func() {
		f, as := twoTenants()
		owner := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.stop()
		Expect(f.kube.Delete(context.Background(), f.secret(f.credentials, published.DigestClaimName(vaultDigest)))).To(Succeed())
		thief := aKey("thief", "coffee").digest(vaultDigest).ApiKey
		as(func() {
			f.apply(thief)
			// This operator does not manage the owner, and so cannot claim for it.
			f.startOperator()
			f.awaitStalled(thief, v1alpha1.ReasonKeyDigestClaimed)
		})
		Expect(f.claim(vaultDigest)).To(BeNil())
		f.stop()
		f.startOperator()
		Eventually(func() *published.DigestClaim { return f.claim(vaultDigest) }).ShouldNot(BeNil())
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(owner.UID))

		Expect(f.kube.Delete(context.Background(), f.secret(f.credentials, published.DigestClaimName(vaultDigest)))).To(Succeed())
		Eventually(func() *published.DigestClaim { return f.claim(vaultDigest) }).ShouldNot(BeNil(), "while the operator runs")
		Expect(f.record(owner).Generation).To(BeEquivalentTo(1))
	})

	It("is published once when two operators race for it", func() {
		f, as := twoTenants()
		f.stop()
		home := f.namespace
		var other string
		as(func() { other = f.namespace })
		mine, theirs := aKey("till", "coffee").digest(vaultDigest).ApiKey, aKey("till", "coffee").digest(vaultDigest).ApiKey
		f.apply(mine)
		as(func() { f.apply(theirs) })
		f.startOperator(func(o *Options) { o.WatchNamespaces = []string{home} })
		stopFirst := f.stop
		DeferCleanup(func() { stopFirst() })
		f.startOperator(func(o *Options) { o.WatchNamespaces = []string{other} })

		reasons := func(g Gomega) []string {
			var got []string
			for _, key := range []*v1alpha1.ApiKey{mine, theirs} {
				g.Expect(f.kube.Get(context.Background(), client.ObjectKeyFromObject(key), key)).To(Succeed())
				got = append(got, readyReason(key))
			}
			return got
		}
		Eventually(reasons).Should(ConsistOf(v1alpha1.ReasonPublished, v1alpha1.ReasonKeyDigestClaimed))
		winner, loser := mine, theirs
		if readyReason(mine) != v1alpha1.ReasonPublished {
			winner, loser = theirs, mine
		}
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(winner.UID))
		Expect(f.publishedSecret(winner)).NotTo(BeNil())
		Expect(f.publishedSecret(loser)).To(BeNil())
	})

	It("that another has claimed does not replace the key in force", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		f.key(aKey("owner", "coffee").digest(vaultDigest))
		mine := apikey.NewDigest("another key from a vault, of 32 characters")
		key := f.key(aKey("till", "coffee").digest(mine))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = vaultDigest.Hex() })
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestClaimed)
		Expect(f.record(key).Current.Digest.Equal(mine)).To(BeTrue())
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = mine.Hex() })
		f.awaitReady(key)
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
	})

	It("stays claimed when its ApiKey has another, and no ApiKey claims without end", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		for i := range 31 {
			f.clock.advance(time.Minute) // the rate of rotations
			next := apikey.NewDigest(fmt.Sprintf("key %d from a vault, with 32 characters", i))
			f.clock.advance(time.Minute) // as often as a spec may rotate
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = next.Hex() })
			f.awaitGeneration(key, int64(i)+2)
		}
		Expect(f.claim(vaultDigest).Source.UID).To(Equal(key.UID))
		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.KeyDigest = apikey.NewDigest("one key too many, with 32 characters").Hex()
		})
		f.awaitStalled(key, v1alpha1.ReasonTooManyKeyDigests)
		Expect(f.record(key).Generation).To(BeEquivalentTo(32), "the key in force goes on")

		f.clock.advance(time.Minute)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = vaultDigest.Hex() })
		f.awaitGeneration(key, 33)
	})
})

// tombstone returns what remembers the end of an object; nil: nothing does.
func (f *fixture) tombstone(name string) *published.Tombstone {
	GinkgoHelper()
	var configMap corev1.ConfigMap
	err := f.kube.Get(context.Background(), client.ObjectKey{Namespace: f.credentials, Name: name}, &configMap)
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
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		merchantName, keyName := published.MerchantTombstoneName(published.ID(coffee.UID)), published.KeyTombstoneName(published.ID(key.UID))
		Expect(f.tombstone(merchantName)).To(BeNil())
		Expect(f.tombstone(keyName)).To(BeNil())
		f.delete(key)
		f.awaitGone(key)
		f.delete(coffee)
		f.awaitGone(coffee)
		Expect(f.tombstone(keyName).Source).To(Equal(published.Source{Namespace: f.namespace, Name: "till", UID: key.UID}))
		Expect(f.tombstone(merchantName).Source).To(Equal(published.Source{Namespace: f.namespace, Name: "coffee", UID: coffee.UID}))

		f.clock.advance(90*24*time.Hour - time.Minute)
		seen := passes("tombstone")
		f.restart()
		Eventually(func() int { return passes("tombstone") }).Should(BeNumerically(">=", seen+2))
		Expect(f.tombstone(keyName)).NotTo(BeNil())
		Expect(f.tombstone(merchantName)).NotTo(BeNil())
		Expect(f.claim(vaultDigest)).NotTo(BeNil())

		f.clock.advance(time.Minute)
		f.restart()
		Eventually(func() *published.Tombstone { return f.tombstone(merchantName) }).Should(BeNil())
		Eventually(func() *published.Tombstone { return f.tombstone(keyName) }).Should(BeNil())
		Expect(f.claim(vaultDigest)).To(BeNil())
	})

	It("is remembered when it went without its finalizer", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee").webhook())
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.stop()
		f.tearOut(key)
		f.tearOut(coffee)
		f.delete(f.publishedSecret(key)) // only the claim is left
		f.startOperator()
		Eventually(func() *published.Tombstone { return f.tombstone(published.KeyTombstoneName(published.ID(key.UID))) }).ShouldNot(BeNil())
		Eventually(func() *published.Tombstone {
			return f.tombstone(published.MerchantTombstoneName(published.ID(coffee.UID)))
		}).ShouldNot(BeNil())
	})

	It("comes although the credentials namespace is being deleted", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		namespace := &corev1.Namespace{}
		namespace.Name = f.credentials
		f.delete(namespace)
		f.delete(key)
		f.awaitGone(key)
	})
})
