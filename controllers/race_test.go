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
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

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
	It("loses no key and issues none twice: the first one", func() {
		w := newWorld(beforePublishing(func() error { return errCrash }))
		w.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitFailed(key)
		plaintext := w.delivered("till-key")
		Expect(w.publishedSecret(key)).To(BeNil())

		w.restart()
		w.awaitGeneration(key, 1)
		Expect(w.live(w.record(key), plaintext)).To(BeTrue(), "the key that the tenant has")
		Expect(w.delivered("till-key").Digest().Equal(plaintext.Digest())).To(BeTrue())
	})

	It("loses no key and issues none twice: a rotation", func() {
		var crash atomic.Bool
		w := newWorld(beforePublishing(func() error {
			if crash.Load() {
				return errCrash
			}
			return nil
		}))
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(time.Hour))
		old := w.delivered("till-key")
		crash.Store(true)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		w.awaitFailed(key)
		plaintext := w.delivered("till-key")
		Expect(w.live(w.record(key), old)).To(BeTrue(), "the old key goes on meanwhile")

		crash.Store(false)
		record := w.awaitGeneration(key, 2)
		Expect(w.live(record, plaintext)).To(BeTrue(), "the key that the tenant has")
		Expect(w.live(record, old)).To(BeTrue())
	})

	It("does not take up what somebody put in the key's place", func() {
		w := newWorld(beforePublishing(func() error { return errCrash }))
		w.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitFailed(key)
		w.stop()
		another, err := apikey.New("aaaaaaaaaaaa")
		Expect(err).NotTo(HaveOccurred())
		change(w, w.secret(w.namespace, "till-key"), func(s *secretObject) { s.Data["apiKey"] = []byte(another.Reveal()) })

		w.restart()
		w.awaitGeneration(key, 1)
		Expect(w.live(w.record(key), w.delivered("till-key"))).To(BeTrue())
		Expect(w.live(w.record(key), another)).To(BeFalse())
	})
})

var _ = Describe("A key that is taken for the first one", func() {
	It("is taken back when there is one already, which no cache knew of", func() {
		var w *world
		var once sync.Once
		inForce := make(chan apikey.Key, 1)
		started := make(chan struct{})
		w = newWorld(beforePublishing(func() error {
			<-started
			once.Do(func() {
				defer GinkgoRecover()
				inForce <- w.publishAnother("till")
			})
			return nil
		}))
		close(started)
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		w.awaitNoSecret("till-key")
		Expect(w.live(w.record(key), <-inForce)).To(BeTrue(), "the one that was there goes on")
		Expect(w.record(key).Generation).To(BeEquivalentTo(1))
	})
})

var _ = Describe("An ApiKey whose finalizer and status somebody removed, when another operator leads", func() {
	elect := func(w *world) func(*Options) {
		return func(o *Options) { o.LeaderElect, o.LeaderElectionNamespace = true, w.credentials }
	}
	// forget removes all traces of the operator from an ApiKey.
	forget := func(w *world, key *v1alpha1.ApiKey) {
		GinkgoHelper()
		change(w, key, func(k *v1alpha1.ApiKey) { k.Finalizers = nil })
		Expect(w.kube.Status().Patch(context.Background(), key, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status"}]`)))).To(Succeed())
	}

	It("keeps its key", func() {
		w := newWorld()
		w.stop()
		w.startOperator(elect(w))
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		plaintext, record := w.delivered("till-key"), w.record(key)
		w.stop()
		forget(w, key)
		w.startOperator(elect(w))
		w.awaitReady(key)
		Expect(key.Finalizers).To(ContainElement(v1alpha1.Finalizer))
		Expect(w.record(key)).To(Equal(record))
		Expect(w.delivered("till-key")).To(Equal(plaintext))
	})

	It("keeps its key although its tenant has deleted the delivered Secret", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		plaintext, record := w.delivered("till-key"), w.record(key)
		w.stop()
		w.delete(w.secret(w.namespace, "till-key"))
		forget(w, key)
		w.startOperator(elect(w))
		w.awaitReady(key)
		Expect(w.record(key)).To(Equal(record))
		Expect(w.live(w.record(key), plaintext)).To(BeTrue())
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())
	})

	It("gets the key that was delivered and not yet published", func() {
		w := newWorld(beforePublishing(func() error { return errCrash }))
		w.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitFailed(key)
		plaintext := w.delivered("till-key")
		w.stop()
		forget(w, key)
		w.startOperator(elect(w))
		w.awaitGeneration(key, 1)
		Expect(w.live(w.record(key), plaintext)).To(BeTrue())
		Expect(w.delivered("till-key")).To(Equal(plaintext))
	})
})

var _ = Describe("A rotation over HTTP that comes first", func() {
	// overtaken starts a world in which the next write of the key, once armed, is overtaken.
	overtaken := func() (w *world, arm func(*v1alpha1.ApiKey), fresh func() apikey.Key) {
		var once sync.Once
		var target atomic.Pointer[v1alpha1.ApiKey]
		made := make(chan apikey.Key, 1)
		w = newWorld(beforePublishing(func() error {
			if key := target.Load(); key != nil {
				once.Do(func() {
					defer GinkgoRecover()
					made <- w.rotateOverHTTP(key)
				})
			}
			return nil
		}))
		return w, func(key *v1alpha1.ApiKey) { target.Store(key.DeepCopy()) }, func() apikey.Key {
			GinkgoHelper()
			var key apikey.Key
			Eventually(made).Should(Receive(&key))
			return key
		}
	}

	It("is not lost to a rotation by trigger, nor is that one", func() {
		w, arm, fresh := overtaken()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(time.Hour))
		first := w.delivered("till-key")
		arm(key)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })

		second := fresh()
		record := w.awaitGeneration(key, 3)
		third := w.delivered("till-key")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(w.live(record, third)).To(BeTrue())
		Expect(w.live(record, second)).To(BeTrue(), "it overlaps")
		Expect(w.live(record, first)).To(BeFalse(), "HTTP killed it")
	})

	It("leaves no dead key with the tenant when it makes a rotation by schedule needless", func() {
		w, arm, fresh := overtaken()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").every(300 * time.Second))
		arm(key)
		w.clock.advance(300 * time.Second)
		change(w, w.publishedSecret(key), func(s *secretObject) { s.Annotations = map[string]string{"poked": "yes"} })

		second := fresh()
		record := w.awaitGeneration(key, 2)
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationAPI))
		Expect(w.live(record, second)).To(BeTrue())
		w.awaitNoSecret("till-key")
	})
})
