package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// merchant writes what makes a Merchant ready: finalizer, ConfigMap, status and event.
func (f *floor) merchant(ctx context.Context, i int) error {
	merchant := f.merchants[i]
	version, err := f.hold(ctx, merchantsResource, merchant.Name, merchant.ResourceVersion)
	if err != nil {
		return err
	}
	configMap, err := published.EncodeMerchant(f.credentials(), published.NewMerchantRecord(merchant))
	if err != nil {
		return err
	}
	if _, err := f.typed.CoreV1().ConfigMaps(f.credentials()).Create(ctx, configMap, owned()); err != nil {
		return err
	}
	f.tell("Merchant", merchant, v1alpha1.ReasonPublished, "Publish", fmt.Sprintf("Told the data plane about the Merchant, state %s", merchant.Spec.State))
	status := v1alpha1ac.MerchantStatus().
		WithObservedGeneration(merchant.Generation).
		WithMerchantID(published.ShownMerchantID(published.ID(merchant.UID))).
		WithConditions(subject.Apply(subject.Ready("The data plane knows the Merchant in its present form").
			Conditions(nil, merchant.Generation, time.Now()))...)
	return f.report(ctx, merchantsResource, merchant.Name,
		v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithResourceVersion(version).WithStatus(status))
}

// key writes what makes an ApiKey ready: finalizer, delivered Secret, published Secret, status and event.
func (f *floor) key(ctx context.Context, i int) error {
	object := f.keys[i]
	version, err := f.hold(ctx, keysResource, object.Name, object.ResourceVersion)
	if err != nil {
		return err
	}
	key, err := apikey.New(published.ID(object.UID))
	if err != nil {
		return err
	}
	if _, err := f.typed.CoreV1().Secrets(f.tenant()).Create(ctx, deliveredSecret(object, key), owned()); err != nil {
		return err
	}
	now := time.Now().UTC()
	base := published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(f.merchantOf(i).UID), State: object.Spec.State,
		Source: published.Source{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
	}
	record := base.Rotated(published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationInitial, 0, now)
	secret, err := published.EncodeKey(f.credentials(), record)
	if err != nil {
		return err
	}
	if _, err := f.typed.CoreV1().Secrets(f.credentials()).Create(ctx, secret, owned()); err != nil {
		return err
	}
	f.tell("ApiKey", object, "Rotated", "Issue", fmt.Sprintf("Issued generation %d of the key, cause %s", record.Generation, v1alpha1.RotationInitial))
	status := v1alpha1ac.ApiKeyStatus().
		WithObservedGeneration(object.Generation).
		WithKeyID(record.KeyID).WithPrefix(record.Current.Prefix).WithKeyGeneration(record.Generation).
		WithLastRotation(v1alpha1ac.RotationStatus().WithTime(metav1.NewTime(now)).WithCause(v1alpha1.RotationInitial)).
		WithConditions(subject.Apply(subject.Ready("The data plane knows the key in its present form").
			Conditions(nil, object.Generation, now))...)
	return f.report(ctx, keysResource, object.Name,
		v1alpha1ac.ApiKey(object.Name, object.Namespace).WithResourceVersion(version).WithStatus(status))
}

func deliveredSecret(object *v1alpha1.ApiKey, key apikey.Key) *corev1.Secret {
	isController, blocks := true, false
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.Namespace, Name: object.Name + "-key",
			Labels:      map[string]string{deliveries.Label: deliveries.LabelKey},
			Annotations: map[string]string{"merchant-operator.io/generation": "1"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey", Name: object.Name, UID: object.UID,
				Controller: &isController, BlockOwnerDeletion: &blocks,
			}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"apiKey": []byte(key.Reveal()), "keyID": []byte(key.ID()), "prefix": []byte(key.Prefix())},
	}
}

func owned() metav1.CreateOptions { return metav1.CreateOptions{FieldManager: subject.FieldOwner} }
