package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// cacheOptions selects Merchants, ApiKeys and the published objects. Reading anything else through the cache is an
// error, not a new watch.
func cacheOptions(o Options) (cache.Options, error) {
	secrets, err := labels.NewRequirement(published.Label, selection.In, []string{published.LabelKey, published.LabelWebhook, published.LabelDigest})
	if err != nil {
		return cache.Options{}, fmt.Errorf("select published Secrets: %w", err)
	}
	configMaps, err := labels.NewRequirement(published.Label, selection.In, []string{published.LabelMerchant, published.LabelTombstone, published.LabelLastUse})
	if err != nil {
		return cache.Options{}, fmt.Errorf("select published ConfigMaps: %w", err)
	}
	inCredentials := func(selector labels.Selector) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{o.CredentialsNamespace: {}}, Label: selector}
	}
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		NewInformer:                 kube.PagedInformers(strip),
		DefaultTransform:            strip,
		DefaultNamespaces:           kube.WatchedNamespaces(o.WatchNamespaces),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:    inCredentials(labels.NewSelector().Add(*secrets)),
			&corev1.ConfigMap{}: inCredentials(labels.NewSelector().Add(*configMaps)),
		},
	}, nil
}

// addDeliveredCache adds a second cache, because a cache has one selector for each kind. It holds metadata only, so
// that no plaintext stays in memory.
func addDeliveredCache(ctx context.Context, mgr manager.Manager, o Options) (cache.Cache, error) {
	selector, err := tenantsecret.Selector()
	if err != nil {
		return nil, err
	}
	delivered, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:                  mgr.GetHTTPClient(),
		Scheme:                      mgr.GetScheme(),
		Mapper:                      mgr.GetRESTMapper(),
		ReaderFailOnMissingInformer: true,
		NewInformer:                 kube.PagedInformers(strip),
		DefaultTransform:            strip,
		DefaultNamespaces:           kube.WatchedNamespaces(o.WatchNamespaces),
		DefaultLabelSelector:        selector,
	})
	if err != nil {
		return nil, err
	}
	if err := tenantsecret.ByOwner.Add(ctx, delivered); err != nil {
		return nil, err
	}
	return delivered, mgr.Add(startedAsCache{delivered})
}

// startedAsCache lets the manager start a cache before the controllers, without leadership.
type startedAsCache struct{ cache.Cache }

// GetCache marks it as a cache for the manager.
func (c startedAsCache) GetCache() cache.Cache { return c.Cache }

// maxKept is in bytes; labels and the operator's annotations are shorter.
const maxKept = 63

// keptKeys are the labels and annotations that the operator reads of objects that tenants write.
func keptKeys() []string {
	return []string{published.Label, tenantsecret.Label, apikeys.GenerationAnnotation}
}

// strip is the transform of every cache. It keeps what the operator reads and drops everything else, because a tenant may write a
// megabyte of finalizers, owners or conditions into each object. So nothing may be written back from a cached object as a whole.
func strip(cached any) (any, error) {
	object, ok := cached.(metav1.ObjectMetaAccessor)
	if !ok {
		return cached, nil
	}
	metadata, ok := object.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return cached, nil
	}
	*metadata = metav1.ObjectMeta{
		Name:              metadata.Name,
		Namespace:         shared(metadata.Namespace),
		UID:               metadata.UID,
		ResourceVersion:   metadata.ResourceVersion,
		Generation:        metadata.Generation,
		CreationTimestamp: metadata.CreationTimestamp,
		DeletionTimestamp: metadata.DeletionTimestamp,
		Labels:            kept(metadata.Labels, published.Label, tenantsecret.Label),
		Annotations:       kept(metadata.Annotations, apikeys.GenerationAnnotation),
		OwnerReferences:   ownController(metadata),
		Finalizers:        ownFinalizer(metadata.Finalizers),
	}
	switch object := cached.(type) {
	case *v1alpha1.Merchant:
		shareStrings(&object.TypeMeta.Kind, &object.TypeMeta.APIVersion)
		object.Status.Conditions = compact(object.Status.Conditions)
		object.Status.Allowlist = nil
		if webhook := object.Status.Webhook; webhook != nil {
			object.Status.Webhook = &v1alpha1.WebhookStatus{ObservedTestTrigger: webhook.ObservedTestTrigger}
		}
	case *v1alpha1.ApiKey:
		shareStrings(&object.TypeMeta.Kind, &object.TypeMeta.APIVersion, &object.Spec.MerchantRef.Name)
		object.Status.Conditions = compact(object.Status.Conditions)
	}
	return cached, nil
}

// ownController returns the controller of an object, if it is a Merchant or an ApiKey.
func ownController(metadata *metav1.ObjectMeta) []metav1.OwnerReference {
	owner := metav1.GetControllerOf(metadata)
	if owner == nil || owner.APIVersion != v1alpha1.SchemeGroupVersion.String() ||
		len(owner.Kind) > maxKept || len(owner.Name) > maxKept || len(owner.UID) > maxKept {
		return nil
	}
	owner.APIVersion, owner.Kind = shared(owner.APIVersion), shared(owner.Kind)
	return []metav1.OwnerReference{*owner}
}

// ownFinalizer returns the operator's finalizer, if it is in the list. Nobody may change it.
func ownFinalizer(all []string) []string {
	if slices.Contains(all, v1alpha1.Finalizer) {
		return ownFinalizers
	}
	return nil
}

// compact returns the conditions that the operator can have written, without spare capacity. Most objects have the same ones. A message
// that is too long is dropped: then the condition differs from the one that the operator wants, and is written again.
func compact(all []metav1.Condition) []metav1.Condition {
	all = slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool { return len(c.Type) > maxKept || len(c.Reason) > maxKept })
	all = slices.Clip(all)
	for i := range all {
		shareStrings(&all[i].Type, &all[i].Reason, (*string)(&all[i].Status))
		if len(all[i].Message) > conditions.MaxMessage {
			all[i].Message = ""
		}
		if all[i].Type == v1alpha1.ReadyCondition || all[i].Type == v1alpha1.UsableCondition {
			shareStrings(&all[i].Message)
		}
	}
	return all
}

func shareStrings(texts ...*string) {
	for _, text := range texts {
		*text = shared(*text)
	}
}

// ownFinalizers are the finalizers of most objects. Nobody may change the list.
var ownFinalizers = []string{v1alpha1.Finalizer}

// kept returns the entries of these keys in a map that shares no memory with the old one. Nobody may change it.
func kept(entries map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := entries[key]; ok && len(value) <= maxKept {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[key] = shared(value)
		}
	}
	for key, value := range out {
		if common := commonEntries[entry{key, value}]; common != nil && len(out) == 1 {
			return common
		}
	}
	return out
}

// entry is a label or an annotation.
type entry struct{ key, value string }

// commonEntries has the maps of one entry that most objects have: Go takes 300 bytes for each map.
var commonEntries = func() map[entry]map[string]string {
	all := map[entry]map[string]string{}
	add := func(key string, values ...string) {
		for _, value := range values {
			all[entry{key, value}] = map[string]string{key: value}
		}
	}
	add(published.Label, published.LabelKey, published.LabelWebhook, published.LabelDigest, published.LabelMerchant, published.LabelTombstone)
	add(tenantsecret.Label, tenantsecret.LabelKey, tenantsecret.LabelWebhook)
	for generation := range 100 {
		add(apikeys.GenerationAnnotation, strconv.Itoa(generation))
	}
	return all
}()

// shared returns one copy of a string that many objects have. It is freed with the last of them.
func shared(text string) string { return unique.Make(text).Value() }
