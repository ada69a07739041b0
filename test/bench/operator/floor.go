package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// Concurrent objects, as in the operator.
const keyWorkers, merchantWorkers = 8, 4

// floor writes the same as the operator, without cache, watch, queue or decisions. It has its objects from their creation; the operator
// has to list them.
type floor struct {
	*bench
	objects

	events sync.WaitGroup
	failed chan error // of an event
}

// run makes the ApiKeys in [from, to) ready, and before the first also the Merchants. It returns the time until the last status is
// written; events may follow later, as those of the operator.
func (f *floor) run(ctx context.Context, from, to int) time.Duration {
	started := time.Now()
	if from == 0 {
		fixture.Check(fixture.Each(ctx, merchantWorkers, len(f.objects.merchants), f.merchant))
	}
	fixture.Check(fixture.Each(ctx, keyWorkers, to-from, func(ctx context.Context, i int) error { return f.key(ctx, from+i) }))
	took := time.Since(started)
	f.events.Wait()
	select {
	case err := <-f.failed:
		fixture.Check(err)
	default:
	}
	return took
}

// merchant makes a Merchant ready: finalizer, ConfigMap, status and event.
func (f *floor) merchant(ctx context.Context, i int) error {
	merchant := f.objects.merchants[i]
	version, err := f.addFinalizer(ctx, merchantsResource, merchant.Name, merchant.ResourceVersion)
	if err != nil {
		return err
	}
	configMap, err := published.EncodeMerchant(f.credentials(), published.NewMerchantRecord(merchant))
	if err != nil {
		return err
	}
	if _, err := f.Kube.CoreV1().ConfigMaps(f.credentials()).Create(ctx, configMap, owned()); err != nil {
		return err
	}
	f.emit(ctx, "Merchant", merchant, v1alpha1.ReasonPublished, "Publish", fmt.Sprintf("Published merchant (state %s)", merchant.Spec.State))
	status := v1alpha1ac.MerchantStatus().
		WithObservedGeneration(merchant.Generation).
		WithMerchantID(published.PublicMerchantID(published.ID(merchant.UID))).
		WithConditions(conditions.ApplyConfigurations(conditions.After(nil,
			conditions.Ready("Merchant is published and up to date").Notices(), merchant.Generation, time.Now()))...)
	return f.applyStatus(ctx, merchantsResource, merchant.Name,
		v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithResourceVersion(version).WithStatus(status))
}

// key makes an ApiKey ready: finalizer, delivered Secret, published Secret, status and event.
func (f *floor) key(ctx context.Context, i int) error {
	object := f.objects.keys[i]
	version, err := f.addFinalizer(ctx, keysResource, object.Name, object.ResourceVersion)
	if err != nil {
		return err
	}
	key, err := apikey.New(published.ID(object.UID))
	if err != nil {
		return err
	}
	if _, err := f.Kube.CoreV1().Secrets(f.tenant()).Create(ctx, deliveredSecret(object, key), owned()); err != nil {
		return err
	}
	now := time.Now().UTC()
	base := published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(f.merchantAt(i).UID), State: object.Spec.State,
		Source: published.Source{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
	}
	record := base.Rotated(published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationInitial, 0, now)
	secret, err := published.EncodeKey(f.credentials(), record)
	if err != nil {
		return err
	}
	if _, err := f.Kube.CoreV1().Secrets(f.credentials()).Create(ctx, secret, owned()); err != nil {
		return err
	}
	f.emit(ctx, "ApiKey", object, "Rotated", "Issue", fmt.Sprintf("Issued key (generation %d, cause %s)", record.Generation, v1alpha1.RotationInitial))
	status := v1alpha1ac.ApiKeyStatus().
		WithObservedGeneration(object.Generation).
		WithKeyID(record.KeyID).WithPrefix(record.Current.Prefix).WithKeyGeneration(record.Generation).
		WithLastRotation(v1alpha1ac.RotationStatus().WithTime(metav1.NewTime(now)).WithCause(v1alpha1.RotationInitial)).
		WithConditions(conditions.ApplyConfigurations(conditions.After(nil,
			conditions.Ready("API key is published and up to date").Notices(), object.Generation, now))...)
	return f.applyStatus(ctx, keysResource, object.Name,
		v1alpha1ac.ApiKey(object.Name, object.Namespace).WithResourceVersion(version).WithStatus(status))
}

func deliveredSecret(object *v1alpha1.ApiKey, key apikey.Key) *corev1.Secret {
	isController, blocks := true, false
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.Namespace, Name: object.Name + "-key",
			Labels:      map[string]string{tenantsecret.Label: tenantsecret.LabelKey},
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

func owned() metav1.CreateOptions { return metav1.CreateOptions{FieldManager: writes.FieldOwner} }

// addFinalizer adds the finalizer and returns the new resource version.
func (f *floor) addFinalizer(ctx context.Context, resource, name, version string) (string, error) {
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"resourceVersion":%q}}`, v1alpha1.Finalizer, version)
	answer, err := f.custom.Patch(types.MergePatchType).Namespace(f.tenant()).Resource(resource).Name(name).
		Param("fieldManager", writes.FieldOwner).Body([]byte(patch)).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var patched metav1.PartialObjectMetadata
	err = json.Unmarshal(answer, &patched)
	return patched.ResourceVersion, err
}

// applyStatus applies a status.
func (f *floor) applyStatus(ctx context.Context, resource, name string, status any) error {
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	_, err = f.custom.Patch(types.ApplyPatchType).Namespace(f.tenant()).Resource(resource).Name(name).SubResource("status").
		Param("fieldManager", writes.FieldOwner).Param("force", "true").Body(body).DoRaw(ctx)
	return err
}

// emit creates an event in the background.
func (f *floor) emit(ctx context.Context, kind string, object metav1.Object, reason, action, note string) {
	ctx, now := context.WithoutCancel(ctx), time.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: f.tenant(), Name: fmt.Sprintf("%s.%x", object.GetName(), now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: writes.FieldOwner, ReportingInstance: writes.FieldOwner + "-floor",
		Action: action, Reason: reason, Note: note, Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Namespace: f.tenant(), Name: object.GetName(),
			UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		},
	}
	f.events.Go(func() {
		if _, err := f.plain.EventsV1().Events(f.tenant()).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			select {
			case f.failed <- err:
			default:
			}
		}
	})
}
