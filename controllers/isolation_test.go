package controllers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("One bad object", func() {
	It("does not stop another, and comes right when its cause is gone", func() {
		quota := errors.New("exceeded quota")
		refuse := make(chan struct{})
		f := newFixture(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				select {
				case <-refuse:
				default:
					if object.GetName() == "bad-key" {
						return quota
					}
				}
				return c.Create(ctx, object, options...)
			},
		})
		f.merchant(aMerchant("coffee"))
		bad := f.applied(aKey("bad", "coffee"))
		f.awaitFailed(bad)
		Expect(readyMessage(bad)).To(ContainSubstring("exceeded quota"))
		broken := &corev1.Secret{}
		broken.Namespace, broken.Name, broken.Type = f.credentials, "key-broken", "merchant-operator.io/api-key"
		broken.Labels = map[string]string{"merchant-operator.io/published": "key"}
		Expect(f.kube.Create(context.Background(), broken)).To(Succeed())
		f.key(aKey("good", "coffee"))

		close(refuse)
		f.awaitReady(bad)
	})
})

var _ = Describe("No plaintext", func() {
	It("is anywhere but in the delivered Secret", func() {
		crash := make(chan struct{})
		f := newFixture(beforePublishing(func() error {
			select {
			case <-crash:
				return nil
			default:
				return errCrash
			}
		}))
		f.merchant(aMerchant("coffee"))
		key := f.applied(aKey("till", "coffee").overlap(0))
		f.awaitFailed(key)
		plaintexts := []string{f.delivered("till-key").Reveal()}
		close(crash)
		f.awaitReady(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		plaintexts = append(plaintexts, f.delivered("till-key").Reveal())
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		f.awaitReady(key)
		f.awaitNoSecret("till-key")
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 3)
		f.awaitNoSecret("moved")
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("StaleDeliveryRemoved")))

		written := f.everything()
		digest := f.record(key).Current.Digest.Hex()
		for where, text := range written {
			Expect(text).NotTo(BeEmpty(), "%s were searched", where)
			for _, plaintext := range plaintexts {
				secret := plaintext[strings.LastIndexByte(plaintext, '_')+5:] // past what the prefix shows
				Expect(text).NotTo(ContainSubstring(secret), "%s", where)
			}
			if where != "published Secrets" {
				Expect(text).NotTo(ContainSubstring(digest), "%s", where)
			}
		}
	})
})

// everything is all that the operator has written, as text.
func (f *fixture) everything() map[string]string {
	GinkgoHelper()
	written := map[string]string{"logs": f.logs.String()}
	for what, place := range map[string]struct {
		list      client.ObjectList
		namespace string
	}{
		"published Secrets":    {&corev1.SecretList{}, f.credentials},
		"published ConfigMaps": {&corev1.ConfigMapList{}, f.credentials},
		"tenant's Secrets":     {&corev1.SecretList{}, f.namespace},
		"ApiKeys":              {&v1alpha1.ApiKeyList{}, f.namespace},
		"Merchants":            {&v1alpha1.MerchantList{}, f.namespace},
		"events":               {&eventsv1.EventList{}, f.namespace},
	} {
		Expect(f.kube.List(context.Background(), place.list, client.InNamespace(place.namespace))).To(Succeed())
		text, err := json.Marshal(place.list)
		Expect(err).NotTo(HaveOccurred())
		written[what] = string(text)
		if secrets, ok := place.list.(*corev1.SecretList); ok {
			for _, secret := range secrets.Items {
				for _, value := range secret.Data {
					written[what] += "\n" + string(value) + "\n" + base64.StdEncoding.EncodeToString(value)
				}
			}
		}
	}
	return written
}
