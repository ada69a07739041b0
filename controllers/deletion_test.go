package controllers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("Finalizers of others", func() {
	theirs := []string{"example.com/backup", "example.com/audit"}

	DescribeTable("survive creation and deletion of",
		func(apply func(*fixture) client.Object) {
			f := newFixture()
			object := apply(f)
			f.awaitReady(object)
			Expect(object.GetFinalizers()).To(ConsistOf(append([]string{v1alpha1.Finalizer}, theirs...)))

			f.delete(object)
			Eventually(func() []string {
				f.read(object)
				return object.GetFinalizers()
			}).Should(Equal(theirs))
			change(f, object, func(o client.Object) { o.SetFinalizers(nil) })
			f.awaitGone(object)
		},
		Entry("a Merchant", func(f *fixture) client.Object {
			merchant := aMerchant("coffee").Merchant
			merchant.Finalizers = theirs
			f.apply(merchant)
			return merchant
		}),
		Entry("an ApiKey", func(f *fixture) client.Object {
			f.merchant(aMerchant("coffee"))
			key := aKey("till", "coffee").ApiKey
			key.Finalizers = theirs
			f.apply(key)
			return key
		}),
	)
})

// strip replaces all finalizers of an object by one of somebody else, who may write the object.
func (f *fixture) strip(object client.Object) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/theirs"]}}`))
	Expect(f.kube.Patch(context.Background(), object, patch)).To(Succeed())
}

// tombstones returns the names of all tombstones of the fixture.
func (f *fixture) tombstones() []string {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(f.kube.List(context.Background(), &list, client.InNamespace(f.credentials), client.MatchingLabels{published.Label: published.LabelTombstone})).To(Succeed())
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// A deletion timestamp is the end of a key, whatever finalizers hold the object.
var _ = Describe("A deletion of objects whose finalizer was replaced by another one", func() {
	// held returns a Merchant and an ApiKey that somebody else will hold.
	held := func(f *fixture) (merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) {
		GinkgoHelper()
		merchant = f.merchant(aMerchant("coffee").webhook())
		key = f.key(aKey("till", "coffee"))
		DeferCleanup(func() {
			for _, object := range []client.Object{merchant, key} {
				change(f, object, func(o client.Object) { o.SetFinalizers(nil) })
			}
		})
		return merchant, key
	}
	expectWithdrawn := func(f *fixture, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) {
		GinkgoHelper()
		Eventually(f.publishedNames).Should(BeEmpty())
		Eventually(f.tombstones).Should(ConsistOf(
			published.KeyTombstoneName(published.ID(key.UID)), published.MerchantTombstoneName(published.ID(merchant.UID))))
		for _, object := range []client.Object{merchant, key} {
			f.read(object.DeepCopyObject().(client.Object)) // it is still there
		}
	}

	It("is noticed by an operator that was away", func() {
		f := newFixture()
		merchant, key := held(f)
		f.stop()
		for _, object := range []client.Object{key, merchant} {
			f.strip(object)
			f.delete(object)
		}
		f.startOperator()
		expectWithdrawn(f, merchant, key)
	})

	It("is noticed at once", func() {
		f := newFixture()
		merchant, key := held(f)
		for _, object := range []client.Object{key, merchant} {
			f.strip(object)
			f.delete(object)
		}
		expectWithdrawn(f, merchant, key)
	})

	It("is noticed while they are replaced in a loop", func() {
		f := newFixture()
		merchant, key := held(f)
		f.strip(key)
		f.strip(merchant)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					f.strip(key.DeepCopy())
					f.strip(merchant.DeepCopy())
				}
			}
		}()
		f.delete(key.DeepCopy())
		f.delete(merchant.DeepCopy())
		expectWithdrawn(f, merchant, key)
		close(stop)
		<-stopped
	})

	It("is noticed when it is that of the namespace", func() {
		f := newFixture()
		merchant, key := held(f)
		f.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}})
		for _, object := range []client.Object{key, merchant} { // as the controller of namespaces does
			f.strip(object)
			f.delete(object)
		}
		expectWithdrawn(f, merchant, key)
	})
})

var _ = Describe("An ApiKey to which no finalizer can be added", func() {
	It("is disabled all the same", func() {
		var refuse atomic.Bool
		f := newFixture(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if refuse.Load() {
					return errors.New("the object is too large")
				}
				return c.Apply(ctx, object, options...)
			},
		})
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		refuse.Store(true)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Finalizers, k.Spec.State = nil, v1alpha1.ApiKeyDisabled })
		Eventually(func() v1alpha1.ApiKeyState { return f.record(key).State }).Should(Equal(v1alpha1.ApiKeyDisabled))
		refuse.Store(false)
	})
})

var _ = Describe("A tombstone", func() {
	It("is not written for what never was", func() {
		f := newFixture()
		key := aKey("till", "coffee").ApiKey // without a Merchant
		f.apply(key)
		f.awaitWaiting(key)
		f.delete(key)
		f.awaitGone(key)
		Expect(f.tombstones()).To(BeEmpty())
	})

	It("that cannot be written delays no revocation, and is written later", func() {
		var refuse atomic.Bool
		f := newFixture(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if refuse.Load() && strings.HasPrefix(object.GetName(), "tombstone-") {
					return errors.New("a quota is used up")
				}
				return c.Create(ctx, object, options...)
			},
		})
		merchant := f.merchant(aMerchant("coffee"))
		key := f.applied(aKey("till", "coffee").undelivered())
		f.awaitStatus(key, kstatus.CurrentStatus, v1alpha1.ReasonNotIssued)
		refuse.Store(true)
		f.delete(key.DeepCopy())
		f.delete(merchant.DeepCopy())
		Eventually(func() v1alpha1.ApiKeyState { return f.record(key).State }).Should(Equal(v1alpha1.ApiKeyDisabled))
		Eventually(func() v1alpha1.MerchantState { return f.merchantRecord(Default, merchant).State }).Should(Equal(v1alpha1.MerchantClosed))
		f.stop() // an interruption forgets nothing
		refuse.Store(false)
		f.startOperator()
		f.awaitGone(key.DeepCopy())
		f.awaitGone(merchant.DeepCopy())
		Expect(f.publishedNames()).To(BeEmpty())
		Expect(f.tombstones()).To(HaveLen(2))
	})
})

// tearOut deletes an object without any regard for its finalizer, while no operator runs.
func (f *fixture) tearOut(object client.Object) {
	GinkgoHelper()
	f.read(object)
	before := object.DeepCopyObject().(client.Object)
	object.SetFinalizers(nil)
	Expect(f.kube.Patch(context.Background(), object, client.MergeFrom(before))).To(Succeed())
	f.delete(object)
	f.awaitGone(object)
}

func (f *fixture) publishedNames() []string {
	GinkgoHelper()
	var names []string
	var secrets corev1.SecretList
	Expect(f.kube.List(context.Background(), &secrets, client.InNamespace(f.credentials))).To(Succeed())
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	var configMaps corev1.ConfigMapList
	selector := client.MatchingLabels{published.Label: published.LabelMerchant}
	Expect(f.kube.List(context.Background(), &configMaps, client.InNamespace(f.credentials), selector)).To(Succeed())
	for i := range configMaps.Items {
		names = append(names, configMaps.Items[i].Name)
	}
	return names
}

var _ = Describe("A Merchant with a webhook that went without its finalizer", func() {
	It("leaves nothing that signs, and takes nobody else's", func() {
		f := newFixture()
		coffee, books := f.merchant(aMerchant("coffee").webhook()), f.merchant(aMerchant("books").webhook())
		f.stop()
		f.tearOut(coffee)
		Expect(f.publishedNames()).To(HaveLen(4), "nobody was there to clean up")
		f.startOperator()
		Eventually(f.publishedNames).Should(ConsistOf(
			published.WebhookName(published.ID(books.UID)), published.MerchantName(published.ID(books.UID))))
	})

	It("is noticed while the operator runs", func() {
		f := newFixture()
		f.tearOut(f.merchant(aMerchant("coffee").webhook()))
		Eventually(f.publishedNames).Should(BeEmpty())
	})
})

var _ = Describe("An object that went without its finalizer", func() {
	It("leaves no key that works, and takes nobody else's", func() {
		f := newFixture()
		coffee, books := f.merchant(aMerchant("coffee")), f.merchant(aMerchant("books"))
		till, web := f.key(aKey("till", "coffee")), f.key(aKey("web", "books"))
		f.stop()
		f.tearOut(till)
		f.tearOut(coffee)
		Expect(f.publishedNames()).To(HaveLen(4), "nobody was there to clean up")

		f.startOperator()
		Eventually(f.publishedNames).Should(ConsistOf(
			published.KeyName(published.ID(web.UID)), published.MerchantName(published.ID(books.UID))))
		Expect(f.record(web).Generation).To(BeEquivalentTo(1))
	})

	It("leaves no record of a newer version", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		f.stop()
		later := strings.NewReplacer(`"version":1`, `"version":2`, `"lastRotation":`, `"lastRotation":7,"was":`, `"rateLimit":`, `"rateLimit":7,"was":`)
		change(f, f.publishedSecret(till), func(s *secretObject) { s.Data["record.json"] = []byte(later.Replace(string(s.Data["record.json"]))) })
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(coffee.UID))
		change(f, configMap, func(c *corev1.ConfigMap) { c.Data["merchant.json"] = later.Replace(c.Data["merchant.json"]) })
		f.tearOut(till)
		f.tearOut(coffee)
		f.startOperator()
		Eventually(f.publishedNames).Should(BeEmpty())
		for _, name := range []string{published.KeyTombstoneName(published.ID(till.UID)), published.MerchantTombstoneName(published.ID(coffee.UID))} {
			f.read(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.credentials, Name: name}})
		}
	})

	It("is noticed while the operator runs", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		name := published.KeyName(published.ID(till.UID))
		f.tearOut(till)
		Eventually(f.publishedNames).ShouldNot(ContainElement(name))
	})

	It("is left alone in namespaces of another operator", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		record := f.record(till)
		f.waitForLastUses()
		f.stop()
		record.KeyID, record.Source = "abcdefgh2345", published.Source{Namespace: "elsewhere", Name: "till", UID: "1"}
		foreign, err := published.EncodeKey(f.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.kube.Create(context.Background(), foreign)).To(Succeed())
		before := f.versions()
		seen := passes("orphaned-key")
		f.startOperator()
		Eventually(func() int { return passes("orphaned-key") }).Should(BeNumerically(">", seen)) // that of the foreign key
		Expect(f.versions()).To(Equal(before))
		Expect(till.Status.KeyGeneration).To(BeEquivalentTo(1))
	})
})
