package controllers

import (
	"context"
	"fmt"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// merchant applies a Merchant and waits until it is Ready.
func (f *fixture) merchant(b merchantBuilder) *v1alpha1.Merchant {
	GinkgoHelper()
	f.apply(b.Merchant)
	f.awaitReady(b.Merchant)
	return b.Merchant
}

// key applies an ApiKey and waits until it is Ready.
func (f *fixture) key(b keyBuilder) *v1alpha1.ApiKey {
	GinkgoHelper()
	f.apply(b.ApiKey)
	f.awaitReady(b.ApiKey)
	return b.ApiKey
}

// apply creates an object in the tenant's namespace, and waits for nothing.
func (f *fixture) apply(object client.Object) {
	GinkgoHelper()
	object.SetNamespace(f.namespace)
	Expect(f.kube.Create(context.Background(), object)).To(Succeed())
}

// read returns the object as it is now.
func (f *fixture) read(object client.Object) {
	GinkgoHelper()
	Expect(f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object)).To(Succeed())
}

// change edits an object and writes it as a person would.
func change[T client.Object](f *fixture, object T, edit func(T)) {
	GinkgoHelper()
	f.read(object)
	before := object.DeepCopyObject().(client.Object)
	edit(object)
	Expect(f.kube.Patch(context.Background(), object, client.MergeFrom(before))).To(Succeed())
}

func (f *fixture) delete(object client.Object) {
	GinkgoHelper()
	Expect(f.kube.Delete(context.Background(), object)).To(Succeed())
}

// awaitGone waits until the object, of that very UID, is no more.
func (f *fixture) awaitGone(object client.Object) {
	GinkgoHelper()
	uid := object.GetUID()
	Eventually(func() bool {
		err := f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || err == nil && object.GetUID() != uid
	}).Should(BeTrue(), "%s is gone", object.GetName())
}

// publishedSecret returns the Secret that publishes the key; nil: there is none.
func (f *fixture) publishedSecret(key *v1alpha1.ApiKey) *corev1.Secret {
	GinkgoHelper()
	return f.secret(f.credentials, published.KeyName(published.ID(key.UID)))
}

// secret returns a Secret; nil: there is none.
func (f *fixture) secret(namespace, name string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	err := f.kube.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return secret
}

// delivered returns the plaintext in a tenant's Secret.
func (f *fixture) delivered(name string) apikey.Key {
	GinkgoHelper()
	secret := f.secret(f.namespace, name)
	Expect(secret).NotTo(BeNil(), "Secret %s exists", name)
	key, err := apikey.Parse(string(secret.Data["apiKey"]))
	Expect(err).NotTo(HaveOccurred())
	return key
}

// record returns what is published of a key.
func (f *fixture) record(key *v1alpha1.ApiKey) published.KeyRecord {
	GinkgoHelper()
	secret := f.publishedSecret(key)
	Expect(secret).NotTo(BeNil(), "the key is published")
	record, err := published.DecodeKey(secret)
	Expect(err).NotTo(HaveOccurred())
	return record
}

// rotateOverHTTP does to the published Secret what POST /api/v1/keys/rotate does, and returns the new key.
func (f *fixture) rotateOverHTTP(key *v1alpha1.ApiKey) apikey.Key {
	GinkgoHelper()
	var fresh apikey.Key
	Eventually(func() error { // the operator may write in between
		secret := f.publishedSecret(key)
		record, err := published.DecodeKey(secret)
		Expect(err).NotTo(HaveOccurred())
		fresh, err = apikey.New(record.KeyID)
		Expect(err).NotTo(HaveOccurred())
		now := f.clock.Now()
		rotated := record.Rotated(published.Current{Digest: fresh.Digest(), Prefix: fresh.Prefix(), CreatedAt: now}, v1alpha1.RotationAPI, 0, now)
		update, err := published.EncodeKey(f.credentials, rotated)
		Expect(err).NotTo(HaveOccurred())
		update.ResourceVersion = secret.ResourceVersion
		return f.kube.Update(context.Background(), update)
	}).Should(Succeed())
	return fresh
}

// publishAnother publishes the first key of an ApiKey as somebody else would, and returns it.
func (f *fixture) publishAnother(name string) apikey.Key {
	GinkgoHelper()
	object := &v1alpha1.ApiKey{}
	Expect(f.kube.Get(context.Background(), types.NamespacedName{Namespace: f.namespace, Name: name}, object)).To(Succeed())
	merchant := &v1alpha1.Merchant{}
	Expect(f.kube.Get(context.Background(), types.NamespacedName{Namespace: f.namespace, Name: object.Spec.MerchantRef.Name}, merchant)).To(Succeed())
	key, err := apikey.New(published.ID(object.UID))
	Expect(err).NotTo(HaveOccurred())
	now := f.clock.Now()
	base := published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(merchant.UID), State: object.Spec.State,
		Source: published.Source{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
	}
	record := base.Rotated(published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationInitial, 0, now)
	secret, err := published.EncodeKey(f.credentials, record)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.kube.Create(context.Background(), secret)).To(Succeed())
	return key
}

// poke makes the operator reconcile an object once more and waits until a pass over its kind has ended. It
// touches what is published of it, or else the spec.
func (f *fixture) poke(object client.Object, controller string) {
	GinkgoHelper()
	before := passes(controller)
	touch := func(o client.Object) { o.SetAnnotations(map[string]string{"poked": strconv.Itoa(before)}) }
	f.read(object)
	switch object := object.(type) {
	case *v1alpha1.Merchant:
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(object.UID))
		change(f, configMap, func(c *corev1.ConfigMap) { touch(c) })
	case *v1alpha1.ApiKey:
		if secret := f.publishedSecret(object); secret != nil {
			change(f, secret, func(s *secretObject) { touch(s) })
		} else {
			change(f, object, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(before % 86400)) })
		}
	}
	Eventually(func() int { return passes(controller) }).Should(BeNumerically(">", before), "a pass has ended")
}

// passes counts the passes that a controller has ended, in this process.
func passes(controller string) int {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	count := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == controller {
					count += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return int(count)
}

// events returns the reasons of the events about an object, with their notes.
func (f *fixture) events(object client.Object) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(f.kube.List(context.Background(), &list, client.InNamespace(f.namespace))).To(Succeed())
	var emitted []string
	for _, event := range list.Items {
		if event.Regarding.UID == object.GetUID() {
			emitted = append(emitted, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Note))
		}
	}
	return emitted
}

// secretObject shortens the edits of Secrets.
type secretObject = corev1.Secret
