package controllers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
)

var _ = Describe("A new key", func() {
	It("is delivered to the tenant, and its digest to the data plane", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		expires := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
		key := f.key(aKey("till", "coffee").trigger("first").expires(expires))

		plaintext := f.delivered("till-key")
		secret := f.secret(f.namespace, "till-key")
		Expect(secret.Data).To(HaveLen(3))
		Expect(secret.Data).To(HaveKeyWithValue("keyID", []byte(plaintext.ID())))
		Expect(secret.Data).To(HaveKeyWithValue("prefix", []byte(plaintext.Prefix())))

		record := f.record(key)
		Expect(record.Current.Digest.Equal(plaintext.Digest())).To(BeTrue(), "the delivered key is the published one")
		Expect(record.KeyID).To(Equal(published.ID(key.UID)))
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Source).To(Equal(published.Source{Namespace: f.namespace, Name: "till", UID: key.UID}))
		Expect(record.Generation).To(BeEquivalentTo(1))
		Expect(record.Previous).To(BeEmpty())
		Expect(record.ExpiresAt).To(HaveValue(BeTemporally("==", expires)))
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(record.HandledTrigger).To(Equal("first"), "the first trigger is handled by the first issue")

		Expect(key.Status.KeyID).To(Equal(record.KeyID))
		Expect(key.Status.Prefix).To(Equal(plaintext.Prefix()))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(key.Status.ObservedTrigger).To(Equal("first"))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(key.Status.NextRotationTime).To(BeNil())
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Normal Rotated: Issued key (generation 1, cause Initial)")))
	})

	It("waits for its Merchant and is no error meanwhile", func() {
		f := newFixture()
		key := f.applied(aKey("till", "coffee"))
		f.awaitWaiting(key)
		Expect(f.publishedSecret(key)).To(BeNil())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())

		f.merchant(aMerchant("coffee"))
		f.awaitReady(key)
		Expect(f.record(key).Current.Digest.Equal(f.delivered("till-key").Digest())).To(BeTrue())
	})

	It("never carries the ApiKey's labels and annotations onto its Secrets", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").annotated("argocd.argoproj.io/instance", "shops"))
		delivered := f.secret(f.namespace, "till-key")
		Expect(delivered.Labels).To(Equal(map[string]string{"merchant-operator.io/delivered": "key"}))
		Expect(delivered.Annotations).To(Equal(map[string]string{"merchant-operator.io/generation": "1"}))
		secret := f.publishedSecret(key)
		Expect(secret.Labels).To(Equal(map[string]string{published.Label: published.LabelKey}))
		Expect(secret.Annotations).To(BeEmpty())
	})

	It("that is externally generated is published by its digest and delivered nowhere", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		digest := apikey.NewDigest("a key from a vault, with 32 characters or more")
		key := f.key(aKey("till", "coffee").digest(digest))
		record := f.record(key)
		Expect(record.Current.Digest.Equal(digest)).To(BeTrue())
		Expect(record.Current.Prefix).To(BeEmpty())
		Expect(key.Status.Prefix).To(BeEmpty())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
	})
})

var _ = Describe("A key whose Merchant goes", func() {
	It("waits, and nothing of it is forgotten", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		record := f.record(key)
		f.delete(merchant)
		f.awaitWaiting(key)
		f.awaitGone(merchant)
		Expect(f.configMap(merchant)).To(BeNil(), "without it the data plane refuses the key")
		disabled := f.record(key)
		Expect(disabled.State).To(Equal(v1alpha1.ApiKeyDisabled), "replicas that do not hear of the Merchant hear of the key")
		Expect(disabled.Revision).To(BeNumerically(">", record.Revision))
		disabled.State, disabled.Revision = record.State, record.Revision
		Expect(disabled).To(Equal(record))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
	})

	It("does not charge for another Merchant of the same name", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		old := f.delivered("till-key")
		f.delete(merchant)
		f.awaitGone(merchant)
		merchant = f.merchant(aMerchant("coffee"))
		record := f.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(f.live(record, old)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("An externally generated key", func() {
	first := apikey.NewDigest("the first key from a vault, 32 or more")
	second := apikey.NewDigest("the second key from a vault, 32 or more")

	It("is replaced by a changed digest, with the overlap", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first).trigger("a").overlap(time.Hour))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest, k.Spec.Rotation.Trigger = second.Hex(), "b" })
		record := f.awaitGeneration(key, 2)
		Expect(record.Accepts(second, f.clock.Now())).To(BeTrue())
		Expect(record.Accepts(first, f.clock.Now())).To(BeTrue())
		Expect(record.HandledTrigger).To(Equal("b"), "both changes are one rotation")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
	})

	It("is not replaced by a changed trigger, which says so", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitReady(key)
		Expect(key.Status.ObservedTrigger).To(Equal("b"))
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Warning TriggerIgnored:")))
	})

	It("stays replaced by a rotation over HTTP", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		fresh := f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		f.poke(key, "apikey")
		record := f.record(key)
		Expect(f.live(record, fresh)).To(BeTrue())
		Expect(record.Accepts(first, f.clock.Now())).To(BeFalse())
	})

	It("changes to one generated here and back, each by one rotation", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "" })
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record = f.awaitGeneration(key, 3)
		Expect(record.Accepts(second, f.clock.Now())).To(BeTrue())
		Expect(key.Status.Prefix).To(BeEmpty())
		f.awaitNoSecret("till-key")
	})

	It("is not accepted for another Merchant of the same name until it is changed", func() {
		f := newFixture()
		former := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		f.delete(former)
		f.awaitGone(former)
		merchant := f.merchant(aMerchant("coffee"))
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Expect(f.record(key).MerchantID).NotTo(Equal(published.ID(merchant.UID)))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record := f.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Accepts(first, f.clock.Now())).To(BeFalse())
	})
})

// beforePublishing calls the hook before each write of a published key; its error stands for the
// write's, which then does not happen.
func beforePublishing(hook func() error) interceptor.Funcs {
	publishes := func(object client.Object) bool {
		_, isSecret := object.(*corev1.Secret)
		return isSecret && strings.HasPrefix(object.GetNamespace(), "credentials-")
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if publishes(object) {
				if err := hook(); err != nil {
					return err
				}
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if publishes(object) {
				if err := hook(); err != nil {
					return err
				}
			}
			return c.Update(ctx, object, options...)
		},
	}
}

var errCrash = errors.New("the process ended here")

var _ = Describe("A pass that ends between delivering and publishing", func() {
	// crashing starts a fixture in which no key is published while crash is set.
	crashing := func() (f *fixture, crash *atomic.Bool) {
		crash = &atomic.Bool{}
		f = newFixture(beforePublishing(func() error {
			if crash.Load() {
				return errCrash
			}
			return nil
		}))
		f.merchant(aMerchant("coffee"))
		return f, crash
	}
	// firstKey interrupts the issue of the first key.
	firstKey := func(f *fixture, crash *atomic.Bool) (key *v1alpha1.ApiKey, delivered apikey.Key) {
		GinkgoHelper()
		crash.Store(true)
		key = f.applied(aKey("till", "coffee"))
		f.awaitFailed(key)
		return key, f.delivered("till-key")
	}
	// rotation interrupts a rotation.
	rotation := func(f *fixture, crash *atomic.Bool) (key *v1alpha1.ApiKey, old, delivered apikey.Key) {
		GinkgoHelper()
		key = f.key(aKey("till", "coffee").overlap(time.Hour))
		old = f.delivered("till-key")
		crash.Store(true)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitFailed(key)
		return key, old, f.delivered("till-key")
	}

	It("loses no key and issues none twice: the first one", func() {
		f, crash := crashing()
		key, plaintext := firstKey(f, crash)
		Expect(f.publishedSecret(key)).To(BeNil())

		crash.Store(false)
		f.awaitGeneration(key, 1)
		Expect(f.live(f.record(key), plaintext)).To(BeTrue(), "the key that the tenant has")
		Expect(f.delivered("till-key").Digest().Equal(plaintext.Digest())).To(BeTrue())
	})

	It("loses no key and issues none twice: a rotation", func() {
		f, crash := crashing()
		key, old, plaintext := rotation(f, crash)
		Expect(f.live(f.record(key), old)).To(BeTrue(), "the old key goes on meanwhile")

		crash.Store(false)
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, plaintext)).To(BeTrue(), "the key that the tenant has")
		Expect(f.live(record, old)).To(BeTrue())
	})

	It("leaves the tenant with the one key that works, if the operator restarts: the first one", func() {
		f, crash := crashing()
		key, interrupted := firstKey(f, crash)

		f.restart()
		record := f.awaitGeneration(key, 1)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue(), "the key that the tenant has")
		Expect(f.live(record, interrupted)).To(BeFalse(), "nobody can distinguish it from one that its tenant has planted")
	})

	It("leaves the tenant with the one key that works, if the operator restarts: a rotation", func() {
		f, crash := crashing()
		key, old, interrupted := rotation(f, crash)

		f.restart()
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue(), "the key that the tenant has")
		Expect(f.live(record, old)).To(BeTrue(), "it overlaps")
		Expect(f.live(record, interrupted)).To(BeFalse())
		Expect(record.Previous).To(HaveLen(1))
	})

	It("does not take up a dead key that its tenant planted as the delivered one", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		leaked := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		Expect(f.live(f.awaitGeneration(key, 2), leaked)).To(BeFalse())

		f.stop() // so that all is there at once
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) {
			s.Data["apiKey"], s.Annotations[apikeys.GenerationAnnotation] = []byte(leaked.Reveal()), "3"
		})
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "routine" })
		f.startOperator()
		record := f.awaitGeneration(key, 3)
		Expect(f.live(record, leaked)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})

	It("does not take up what somebody put in the key's place", func() {
		f, crash := crashing()
		key, _ := firstKey(f, crash)
		f.stop()
		another, err := apikey.New("aaaaaaaaaaaa")
		Expect(err).NotTo(HaveOccurred())
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Data["apiKey"] = []byte(another.Reveal()) })

		f.restart()
		f.awaitGeneration(key, 1)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
		Expect(f.live(f.record(key), another)).To(BeFalse())
	})
})

var _ = Describe("A delivered key, if another operator publishes one of that generation", func() {
	DescribeTable("is taken back: the first key, whose tenant",
		func(write func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			f.stop()
			key := f.applied(aKey("till", "coffee"))
			write(f, key)
			var once sync.Once
			var inForce apikey.Key
			f.startOperator(hooked(beforePublishing(func() error {
				once.Do(func() {
					defer GinkgoRecover()
					inForce = f.publishAnother("till")
				})
				return nil
			})))
			f.awaitDelivered(key, v1alpha1.ReasonNotDelivered)
			f.awaitNoSecret("till-key")
			f.stop()
			Expect(f.live(f.record(key), inForce)).To(BeTrue(), "the one that was there goes on")
			Expect(f.record(key).Generation).To(BeEquivalentTo(1))
		},
		Entry("wrote nothing", func(*fixture, *v1alpha1.ApiKey) {}),
		Entry("wrote a status", func(f *fixture, key *v1alpha1.ApiKey) {
			f.forgeStatus(key, map[string]any{"keyID": "forged", "keyGeneration": 1})
		}),
		Entry("wrote the finalizer", func(f *fixture, key *v1alpha1.ApiKey) {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Finalizers = []string{v1alpha1.Finalizer} })
		}),
	)

	It("is not taken back if the other operator has delivered its own in that Secret", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		f.stop()
		key := f.applied(aKey("till", "coffee"))
		var once sync.Once
		var inForce apikey.Key
		f.startOperator(hooked(beforePublishing(func() error { // it is frozen here, and another one leads
			once.Do(func() {
				defer GinkgoRecover()
				inForce = f.publishAnother("till")
				change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Data["apiKey"] = []byte(inForce.Reveal()) })
			})
			return nil
		})))
		f.awaitReady(key)
		f.awaitDelivered(key, v1alpha1.ReasonDelivered)
		f.poke(key, "apikey")
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
		Expect(f.delivered("till-key").Digest().Equal(inForce.Digest())).To(BeTrue())
	})

	It("is taken back: a rotation", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		f.stop()
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		var once sync.Once
		rotated := key.DeepCopy() // the test reads into key meanwhile
		f.startOperator(hooked(beforePublishing(func() error {
			once.Do(func() {
				defer GinkgoRecover()
				another, err := apikey.New(published.ID(rotated.UID))
				Expect(err).NotTo(HaveOccurred())
				current := published.Current{Digest: another.Digest(), Prefix: another.Prefix(), CreatedAt: f.clock.Now()}
				f.rewrite(rotated, func(r *published.KeyRecord) {
					*r = r.Rotated(current, v1alpha1.RotationTrigger, time.Hour, f.clock.Now())
					r.HandledTrigger = "b"
				})
			})
			return nil
		})))
		f.awaitGeneration(key, 2)
		f.awaitDelivered(key, v1alpha1.ReasonNotDelivered)
		f.awaitNoSecret("till-key")
	})
})

var _ = Describe("An ApiKey whose finalizer and status somebody removed, when another operator leads", func() {
	elect := func(o *Options) { o.LeaderElect = true }
	// forget removes all traces of the operator from an ApiKey.
	forget := func(f *fixture, key *v1alpha1.ApiKey) {
		GinkgoHelper()
		change(f, key, func(k *v1alpha1.ApiKey) { k.Finalizers = nil })
		Expect(f.kube.Status().Patch(context.Background(), key, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status"}]`)))).To(Succeed())
	}

	It("keeps its key", func() {
		f := newFixture()
		f.stop()
		f.startOperator(elect)
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		plaintext, record := f.delivered("till-key"), f.record(key)
		f.stop()
		forget(f, key)
		f.startOperator(elect)
		f.awaitReady(key)
		Expect(key.Finalizers).To(ContainElement(v1alpha1.Finalizer))
		Expect(f.record(key)).To(Equal(record))
		Expect(f.delivered("till-key")).To(Equal(plaintext))
	})

	It("keeps its key although its tenant has deleted the delivered Secret", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		plaintext, record := f.delivered("till-key"), f.record(key)
		f.stop()
		f.delete(f.secret(f.namespace, "till-key"))
		forget(f, key)
		f.startOperator(elect)
		f.awaitReady(key)
		Expect(f.record(key)).To(Equal(record))
		Expect(f.live(f.record(key), plaintext)).To(BeTrue())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
	})

	It("gets a key in place of the one that was delivered and not yet published", func() {
		f := newFixture(beforePublishing(func() error { return errCrash }))
		f.merchant(aMerchant("coffee"))
		key := f.applied(aKey("till", "coffee"))
		f.awaitFailed(key)
		f.stop()
		forget(f, key)
		f.startOperator(elect)
		f.awaitGeneration(key, 1)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("A rotation over HTTP that comes first", func() {
	// overtaken starts a fixture in which the next write of the key, once armed, is overtaken.
	overtaken := func() (f *fixture, arm func(*v1alpha1.ApiKey), fresh func() apikey.Key) {
		var once sync.Once
		var target atomic.Pointer[v1alpha1.ApiKey]
		made := make(chan apikey.Key, 1)
		f = newFixture(beforePublishing(func() error {
			if key := target.Load(); key != nil {
				once.Do(func() {
					defer GinkgoRecover()
					made <- f.rotateOverHTTP(key)
				})
			}
			return nil
		}))
		return f, func(key *v1alpha1.ApiKey) { target.Store(key.DeepCopy()) }, func() apikey.Key {
			GinkgoHelper()
			var key apikey.Key
			Eventually(made).Should(Receive(&key))
			return key
		}
	}

	It("is not lost to a rotation by trigger, nor is that one", func() {
		f, arm, fresh := overtaken()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		first := f.delivered("till-key")
		arm(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })

		second := fresh()
		record := f.awaitGeneration(key, 3)
		third := f.delivered("till-key")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(f.live(record, third)).To(BeTrue())
		Expect(f.live(record, second)).To(BeTrue(), "it overlaps")
		Expect(f.live(record, first)).To(BeFalse(), "HTTP killed it")
	})

	It("leaves no dead key with the tenant when it makes a rotation by schedule needless", func() {
		f, arm, fresh := overtaken()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").every(300 * time.Second))
		arm(key)
		f.clock.advance(300 * time.Second)
		change(f, f.publishedSecret(key), func(s *secretObject) { s.Annotations = map[string]string{"poked": "yes"} })

		second := fresh()
		record := f.awaitGeneration(key, 2)
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationAPI))
		Expect(f.live(record, second)).To(BeTrue())
		f.awaitNoSecret("till-key")
	})
})
