package controllers

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
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

// plantTombstones writes the tombstones of so many Merchants of that name, as if they were created and deleted one after another.
func (f *fixture) plantTombstones(name string, count int) {
	GinkgoHelper()
	for n := range count {
		uid := types.UID(fmt.Sprint(name, n))
		tombstone, err := published.EncodeTombstone(f.credentials, published.Tombstone{
			Kind: published.TombstoneMerchant, ID: published.ID(uid), EndedAt: f.clock.Now().UTC(),
			Source: published.Source{Namespace: f.namespace, Name: name, UID: uid},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(f.kube.Create(context.Background(), tombstone)).To(Succeed())
	}
}

var _ = Describe("A deletion in a namespace that has deleted too much", func() {
	It("keeps the object of whoever does that, and no other", func() {
		f := newFixture()
		victim, last := f.merchant(aMerchant("coffee")), f.merchant(aMerchant("bait").webhook())
		f.plantTombstones("bait", budget.Tombstones)
		f.delete(last.DeepCopy())
		f.awaitStatus(last, kstatus.TerminatingStatus, v1alpha1.ReasonTooManyDeleted)
		// It is revoked and remembered like any other.
		Expect(f.tombstones()).To(ContainElement(published.MerchantTombstoneName(published.ID(last.UID))))
		Expect(f.publishedNames()).To(ConsistOf(published.MerchantName(published.ID(victim.UID))))
		Expect(f.secret(f.namespace, "bait-webhook")).To(BeNil())
		Expect(f.events(last)).To(ContainElement(ContainSubstring(v1alpha1.ReasonTooManyDeleted)))

		f.delete(victim.DeepCopy())
		f.awaitGone(victim.DeepCopy())
		Expect(f.tombstones()).To(ContainElement(published.MerchantTombstoneName(published.ID(victim.UID))))

		f.clock.advance(published.TombstoneRetention)
		f.restart()
		f.awaitGone(last)
	})
})

// freeze makes a published object immutable, as a person with rights there or an admission policy may.
func (f *fixture) freeze(object client.Object) {
	GinkgoHelper()
	Expect(f.kube.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(`{"immutable":true}`)))).To(Succeed())
}

var _ = Describe("Published objects that are immutable", func() {
	for _, always := range []bool{false, true} {
		// With a policy, what the operator creates anew is immutable too.
		policy := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			switch object := object.(type) {
			case *corev1.Secret:
				object.Immutable = &always
			case *corev1.ConfigMap:
				object.Immutable = &always
			}
			return c.Create(ctx, object, options...)
		}}
		It(fmt.Sprintf("restrict, rotate and end all the same; by a policy: %t", always), func() {
			f := newFixture(policy)
			merchant := f.merchant(aMerchant("coffee").webhook())
			digest := apikey.NewDigest("a key from a vault, with 32 characters")
			disabled, rotated, deleted := f.key(aKey("disabled", "coffee")), f.key(aKey("rotated", "coffee")), f.key(aKey("deleted", "coffee").digest(digest))
			for _, key := range []*v1alpha1.ApiKey{disabled, rotated, deleted} {
				f.freeze(f.publishedSecret(key))
			}
			f.freeze(f.secret(f.credentials, published.DigestClaimName(digest)))
			f.freeze(f.secret(f.credentials, published.WebhookName(published.ID(merchant.UID))))
			configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.credentials, Name: published.MerchantName(published.ID(merchant.UID))}}
			f.freeze(configMap)

			change(f, disabled, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
			Eventually(func() bool {
				secret := f.publishedSecret(disabled)
				return secret != nil && strings.Contains(string(secret.Data["record.json"]), string(v1alpha1.ApiKeyDisabled))
			}).Should(BeTrue())
			Expect(f.record(disabled).State).To(Equal(v1alpha1.ApiKeyDisabled))
			change(f, rotated, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
			f.awaitGeneration(rotated, 2)
			f.awaitReady(rotated)
			change(f, disabled, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
			f.awaitReady(disabled)
			Expect(condition(disabled, v1alpha1.KeyLostCondition)).To(BeNil())
			f.delete(deleted.DeepCopy())
			f.awaitGone(deleted)

			change(f, merchant, func(m *v1alpha1.Merchant) {
				m.Spec.State, m.Spec.Webhook.RotationTrigger = v1alpha1.MerchantSuspended, "leaked"
			})
			f.awaitReady(merchant)
			Expect(f.merchantRecord(Default, merchant).State).To(Equal(v1alpha1.MerchantSuspended))
			f.delete(merchant.DeepCopy())
			f.awaitGone(merchant.DeepCopy())
			Expect(f.tombstones()).To(ConsistOf(
				published.KeyTombstoneName(published.ID(deleted.UID)), published.MerchantTombstoneName(published.ID(merchant.UID))))
		})
	}
})

// refusing refuses all writes into the credentials namespace that it names.
func refusing(f *atomic.Pointer[string]) interceptor.Funcs {
	refused := func(verb string, object client.Object) error {
		if verbs := f.Load(); verbs != nil && strings.Contains(*verbs, verb) && strings.HasPrefix(object.GetNamespace(), "credentials-") {
			return errors.New("a policy refuses to " + verb + " it")
		}
		return nil
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := refused("create", object); err != nil {
				return err
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if err := refused("update", object); err != nil {
				return err
			}
			return c.Update(ctx, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := refused("delete", object); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
	}
}

var _ = Describe("Published objects that nobody may update", func() {
	It("are deleted and remembered all the same", func() {
		var refuse atomic.Pointer[string]
		f := newFixture(refusing(&refuse))
		merchant, key := f.merchant(aMerchant("coffee")), f.key(aKey("till", "coffee"))
		refuse.Store(new("update"))
		f.delete(key.DeepCopy())
		f.delete(merchant.DeepCopy())
		f.awaitGone(key.DeepCopy())
		f.awaitGone(merchant.DeepCopy())
		Expect(f.publishedNames()).To(BeEmpty())
		Expect(f.tombstones()).To(HaveLen(2))
	})

	It("say that the key still works", func() {
		var refuse atomic.Pointer[string]
		f := newFixture(refusing(&refuse))
		merchant, key, deleted := f.merchant(aMerchant("coffee")), f.key(aKey("till", "coffee")), f.key(aKey("deleted", "coffee"))
		refuse.Store(new("update, create, delete"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitStalled(key, v1alpha1.ReasonStillAccepted)
		Expect(condition(key, v1alpha1.ReadyCondition).Message).To(ContainSubstring("the key still works"))
		Expect(f.events(key)).To(ContainElement(ContainSubstring("the key still works")))
		f.delete(deleted.DeepCopy())
		f.awaitStatus(deleted, kstatus.TerminatingStatus, v1alpha1.ReasonStillAccepted)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		f.awaitStalled(merchant, v1alpha1.ReasonStillAccepted)

		refuse.Store(nil)
		f.awaitUnusable(key, v1alpha1.ReasonDisabled)
		f.awaitReady(merchant)
		f.awaitGone(deleted)
	})
})

var _ = Describe("A published Secret that is being deleted", func() {
	It("and that a finalizer holds is a lost key", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		secret := f.publishedSecret(key)
		f.strip(secret)
		f.delete(secret)
		Eventually(func() string {
			f.read(key)
			return condition(key, v1alpha1.ReadyCondition).Message
		}).Should(ContainSubstring("is being deleted"))
		change(f, secret, func(s *corev1.Secret) { s.Finalizers = nil })
		f.awaitGeneration(key, 2)
		f.awaitReady(key)
		Expect(condition(key, v1alpha1.KeyLostCondition)).NotTo(BeNil())
	})
})

var _ = Describe("A deletion of an owner with more Secrets than the operator delivers", func() {
	DescribeTable("revokes first, and deletes a few of them at a time",
		func(apply func(*fixture) (owner client.Object, kind, revoked string)) {
			const planted, atOnce = 40, 16
			var mu sync.Mutex
			var steps []string // deletions by name, and "pass" when a pass over an object that is being deleted has read it
			hook := interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					mu.Lock()
					defer mu.Unlock()
					steps = append(steps, object.GetName())
					return c.Delete(ctx, object, options...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					err := c.Get(ctx, key, object, options...)
					if err == nil && object.GetNamespace() != "" && !object.GetDeletionTimestamp().IsZero() {
						mu.Lock()
						defer mu.Unlock()
						steps = append(steps, "pass")
					}
					return err
				},
			}
			f := newFixture()
			owner, kind, revoked := apply(f)
			f.stop()
			for i := range planted {
				f.apply(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("planted-%d", i), Labels: map[string]string{tenantsecret.Label: tenantsecret.LabelKey},
					OwnerReferences: []metav1.OwnerReference{{
						APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
					}},
				}})
			}
			f.delete(owner)
			f.startOperator(hooked(hook))
			f.awaitGone(owner)
			for i := range planted {
				Expect(f.secret(f.namespace, fmt.Sprintf("planted-%d", i))).To(BeNil())
			}
			mu.Lock()
			defer mu.Unlock()
			Expect(slices.IndexFunc(steps, func(name string) bool { return name != "pass" })).To(Equal(slices.Index(steps, revoked)), "the revocation is first")
			deletions := 0
			for _, entry := range steps {
				switch {
				case entry == "pass":
					deletions = 0
				case strings.HasPrefix(entry, "planted-"):
					deletions++
				}
				Expect(deletions).To(BeNumerically("<=", atOnce), "in one pass")
			}
		},
		Entry("an ApiKey", func(f *fixture) (client.Object, string, string) {
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee"))
			return key, "ApiKey", published.KeyName(published.ID(key.UID))
		}),
		Entry("a Merchant", func(f *fixture) (client.Object, string, string) {
			merchant := f.merchant(aMerchant("coffee"))
			return merchant, "Merchant", published.MerchantName(published.ID(merchant.UID))
		}),
	)
})

var _ = Describe("A revocation that has failed for long", func() {
	It("comes within seconds after the cause is gone", func() {
		var refused atomic.Int64
		var refuse atomic.Bool
		f := newFixture(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				if refuse.Load() && strings.HasPrefix(object.GetName(), "key-") {
					refused.Add(1)
					return errors.New("the API server is away")
				}
				return c.Update(ctx, object, options...)
			},
		})
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		refuse.Store(true)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		// Delays that went on doubling would be 41 s after as many failures; a busy machine is not late by that.
		Eventually(refused.Load).WithTimeout(3 * time.Minute).Should(BeNumerically(">=", 14))
		refuse.Store(false)
		Eventually(func() v1alpha1.ApiKeyState { return f.record(key).State }).Should(Equal(v1alpha1.ApiKeyDisabled))
	})

	It("is not delayed by Secrets of the tenant that cannot be deleted", func() {
		var deletions atomic.Int64
		f := newFixture(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if object.GetName() == "till-key" && deletions.Add(1) <= 5 {
					return errors.New("an admission policy")
				}
				return c.Delete(ctx, object, options...)
			},
		})
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.delete(key.DeepCopy())
		Eventually(func() *corev1.Secret { return f.publishedSecret(key) }).Should(BeNil())
		f.awaitGone(key.DeepCopy())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
		Expect(deletions.Load()).To(BeEquivalentTo(6))
	})

	It("is not delayed by a Secret of the tenant that names its UID as another kind of owner", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, f.secret(f.namespace, "till-key"), func(secret *corev1.Secret) { secret.OwnerReferences[0].Kind = "Till" })
		f.delete(key.DeepCopy())
		f.awaitGone(key.DeepCopy())
		Expect(f.publishedSecret(key)).To(BeNil())
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

// lossyConnection is between an operator and the API server, and can keep the operator from hearing of ApiKeys and Merchants.
type lossyConnection struct {
	pass    http.Handler
	mu      sync.Mutex
	lost    bool
	watches []context.CancelFunc
}

// connect returns a kubeconfig that leads over the connection.
func (c *lossyConnection) connect(f *fixture) string {
	GinkgoHelper()
	server, err := url.Parse(environment.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(environment.Config)
	Expect(err).NotTo(HaveOccurred())
	c.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     log.New(GinkgoWriter, "", 0),
	}
	listener := httptest.NewServer(c)
	DeferCleanup(func() {
		f.stop() // it keeps its connections until then
		listener.Close()
	})
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: listener.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it"}},
		CurrentContext: "it",
	}, kubeconfig)).To(Succeed())
	return kubeconfig
}

// ServeHTTP passes a request on. While the connection is lost, watches and lists fail, and a watch cannot go on where it ended.
func (c *lossyConnection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watched := strings.HasSuffix(r.URL.Path, "/apikeys") || strings.HasSuffix(r.URL.Path, "/merchants")
	if r.Method != http.MethodGet || !watched {
		c.pass.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c.mu.Lock()
	lost := c.lost
	c.watches = append(c.watches, cancel)
	c.mu.Unlock()
	switch {
	case !lost:
		defer func() { _ = recover() }() // of a watch that is cut
		c.pass.ServeHTTP(w, r.WithContext(ctx))
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusGone)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// lose cuts the watches, until the connection is back.
func (c *lossyConnection) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
	for _, cut := range c.watches {
		cut()
	}
	c.watches = nil
}

func (c *lossyConnection) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = false
}

// An operator that lists after a lost watch sees one change of an object, from one UID to another, and no deletion.
var _ = Describe("Objects that went without their finalizer and were created again, while the watch was lost", func() {
	It("leave nothing of the former ones", func() {
		f := newFixture()
		f.stop()
		connection := &lossyConnection{}
		f.startOperator(func(o *Options) { o.Kubeconfig = connection.connect(f) })
		merchant := f.merchant(aMerchant("coffee").webhook())
		key := f.key(aKey("till", "coffee"))
		digest := apikey.NewDigest("a key from a vault, with 32 characters or more")
		external := f.key(aKey("vault", "coffee").digest(digest))

		connection.lose()
		for _, object := range []client.Object{key, external, merchant} {
			f.tearOut(object.DeepCopyObject().(client.Object))
		}
		again := []client.Object{
			aMerchant("coffee").webhook().Merchant, aKey("till", "coffee").ApiKey, aKey("vault", "coffee").digest(digest).ApiKey,
		}
		for _, object := range again {
			f.apply(object)
		}
		connection.restore()

		left := published.ID(merchant.UID)
		Eventually(f.publishedNames).ShouldNot(ContainElement(BeElementOf(published.KeyName(published.ID(key.UID)),
			published.KeyName(published.ID(external.UID)), published.MerchantName(left), published.WebhookName(left))))
		Eventually(f.tombstones).Should(ConsistOf(published.MerchantTombstoneName(left),
			published.KeyTombstoneName(published.ID(key.UID)), published.KeyTombstoneName(published.ID(external.UID))))
		for _, object := range again { // this operator ends before the objects are looked at for the last time
			Eventually(func(g Gomega) { f.read(object); expectConformant(g, object) }).Should(Succeed())
		}
	})
})
