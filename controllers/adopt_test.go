package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// versions are the resource versions of everything in both namespaces but events.
func (w *world) versions() map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	for _, namespace := range []string{w.namespace, w.credentials} {
		for kind, list := range map[string]client.ObjectList{
			"Merchant": &v1alpha1.MerchantList{}, "ApiKey": &v1alpha1.ApiKeyList{},
			"Secret": &corev1.SecretList{}, "ConfigMap": &corev1.ConfigMapList{},
		} {
			Expect(w.kube.List(context.Background(), list, client.InNamespace(namespace))).To(Succeed())
			Expect(meta.EachListItem(list, func(object runtime.Object) error {
				o := object.(client.Object)
				versions[kind+" "+namespace+"/"+o.GetName()] = o.GetResourceVersion()
				return nil
			})).To(Succeed())
		}
	}
	return versions
}

// population applies objects of every sort and returns the ApiKeys.
func (w *world) population() []*v1alpha1.ApiKey {
	GinkgoHelper()
	w.merchant(aMerchant("coffee").webhook(func(h *v1alpha1.Webhook) { h.RotationTrigger = "a" }))
	w.merchant(aMerchant("books").state(v1alpha1.MerchantSuspended))
	waiting := aKey("waiting", "nobody")
	w.apply(waiting.ApiKey)
	w.awaitWaiting(waiting.ApiKey)
	return []*v1alpha1.ApiKey{
		w.key(aKey("till", "coffee").trigger("a")),
		w.key(aKey("web", "books").deliveredAs("elsewhere").every(300e9)),
		w.key(aKey("vault", "books").digest(w.delivered("elsewhere").Digest())),
		waiting.ApiKey,
	}
}

var _ = Describe("Steady state", func() {
	It("writes nothing in a second pass", func() {
		w := newWorld()
		keys := w.population()
		for _, key := range keys {
			w.poke(key, "apikey")
		}
		merchant := aMerchant("coffee").Merchant
		merchant.Namespace = w.namespace
		w.poke(merchant, "merchant")
		before := w.versions()
		w.poke(merchant, "merchant")
		name := "ConfigMap " + w.credentials + "/" + published.MerchantName(published.ID(merchant.UID))
		before[name] = w.versions()[name]
		for _, key := range keys {
			if w.publishedSecret(key) != nil {
				pokedOnly(w, key, before)
			}
		}
	})

	It("is not changed by another operator", func() {
		w := newWorld()
		keys := w.population()
		before := w.versions()
		w.stop()
		seen, seenMerchants := passes("apikey"), passes("merchant")
		w.startOperator()
		Eventually(func() int { return passes("apikey") }).Should(BeNumerically(">=", seen+len(keys)))
		Eventually(func() int { return passes("merchant") }).Should(BeNumerically(">=", seenMerchants+2))
		Expect(w.versions()).To(Equal(before))
	})

	It("is not changed by a lost status, which is rebuilt", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a"))
		before, status := w.versions(), key.Status.DeepCopy()
		Expect(w.kube.Status().Patch(context.Background(), key, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status"}]`)))).To(Succeed())
		Eventually(func(g Gomega) {
			w.read(key)
			for i := range key.Status.Conditions { // a lost time cannot come back
				key.Status.Conditions[i].LastTransitionTime = status.Conditions[i].LastTransitionTime
			}
			g.Expect(&key.Status).To(Equal(status))
		}).Should(Succeed())
		after := w.versions()
		delete(before, "ApiKey "+w.namespace+"/till")
		delete(after, "ApiKey "+w.namespace+"/till")
		Expect(after).To(Equal(before))
	})
})

// pokedOnly pokes a key and expects that nothing was written but the poke.
func pokedOnly(w *world, key *v1alpha1.ApiKey, before map[string]string) {
	GinkgoHelper()
	w.poke(key, "apikey")
	secret := w.publishedSecret(key)
	before["Secret "+w.credentials+"/"+secret.Name] = secret.ResourceVersion
	Expect(w.versions()).To(Equal(before))
}
