package controllers

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// Strip keeps what the operator reads.
func TestStrip(t *testing.T) {
	secret := func() *metav1.PartialObjectMetadata {
		secret := tenantsecret.Metadata()
		secret.ObjectMeta = metav1.ObjectMeta{
			Name: "till-key", Namespace: "shops", UID: "1", ResourceVersion: "2",
			Labels:          map[string]string{tenantsecret.Label: tenantsecret.LabelKey},
			Annotations:     map[string]string{apikeys.GenerationAnnotation: "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "merchant-operator.io/v1alpha1", Kind: "ApiKey", Name: "till", UID: "3", Controller: new(true)}},
		}
		return secret
	}
	got := secret()
	got.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
	got.Labels["app"], got.Labels["merchant-operator.io/theirs"] = "till", "x"
	got.Annotations["note"], got.Annotations["merchant-operator.io/theirs"] = "x", "x"
	got.OwnerReferences = append(got.OwnerReferences, metav1.OwnerReference{Kind: "Theirs", UID: "4"})
	got.Finalizers = []string{"example.com/theirs"}
	if _, err := strip(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(secret(), got); diff != "" {
		t.Errorf("in the cache (-want +got):\n%s", diff)
	}
	another := secret()
	if _, err := strip(another); err != nil || reflect.ValueOf(another.Labels).Pointer() != reflect.ValueOf(got.Labels).Pointer() ||
		reflect.ValueOf(another.Annotations).Pointer() != reflect.ValueOf(got.Annotations).Pointer() {
		t.Errorf("objects with the same label and annotation have maps of their own: %v", err)
	}
	long := secret()
	long.Annotations[apikeys.GenerationAnnotation] = strings.Repeat("1", 1000)
	if _, err := strip(long); err != nil || long.Annotations != nil {
		t.Errorf("an annotation that the operator cannot have written is kept: %v", err)
	}
}

func TestStrip_SharesEqualValues(t *testing.T) {
	decoded := func() *v1alpha1.ApiKey {
		apiKey := &v1alpha1.ApiKey{
			TypeMeta:   metav1.TypeMeta{APIVersion: "merchant-operator.io/v1alpha1", Kind: "ApiKey"},
			ObjectMeta: metav1.ObjectMeta{Name: "till", Namespace: "shops", UID: "1", ResourceVersion: "2", Finalizers: []string{v1alpha1.Finalizer}},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}},
			Status:     v1alpha1.ApiKeyStatus{KeyID: "aaaaaaaaaaaa", Conditions: make([]metav1.Condition, 2, 4)}, // as the JSON decoder grows it
		}
		apiKey.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Published", Message: "a"}
		apiKey.Status.Conditions[1] = metav1.Condition{Type: v1alpha1.DeliveredCondition, Status: metav1.ConditionTrue, Reason: "Delivered", Message: "b"}
		return apiKey
	}
	one, another := decoded(), decoded()
	for _, object := range []*v1alpha1.ApiKey{one, another} {
		if _, err := strip(object); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(decoded(), one); diff != "" {
		t.Errorf("in the cache (-want +got):\n%s", diff)
	}
	if cap(one.Status.Conditions) != 2 {
		t.Errorf("2 conditions have the memory of %d", cap(one.Status.Conditions))
	}
	if &one.Finalizers[0] != &another.Finalizers[0] {
		t.Error("objects with the operator's finalizer have lists of their own")
	}
}

// Whatever a tenant writes into an object, the cache holds at most 16 KiB more of it than of a bare one: 1,000 objects are 16 MiB.
func TestStrip_BoundsEveryObject(t *testing.T) {
	const limit = 16 << 10
	for name, newObject := range map[string]func() client.Object{
		"ApiKey":           func() client.Object { return &v1alpha1.ApiKey{} },
		"Merchant":         func() client.Object { return &v1alpha1.Merchant{} },
		"delivered Secret": func() client.Object { return tenantsecret.Metadata() },
	} {
		t.Run(name, func(t *testing.T) {
			held := func(object client.Object) int {
				stripped, err := strip(object)
				if err != nil {
					t.Fatal(err)
				}
				return heldBytes(reflect.ValueOf(stripped))
			}
			bare, hostile := held(newObject()), newObject()
			fillWithMegabytes(hostile)
			if full := held(hostile); full > bare+limit {
				t.Errorf("the cache holds %d bytes, and %d of a bare object", full, bare)
			}
		})
	}
}

// The operator's finalizer is known among any number of others.
func TestStrip_KeepsOwnFinalizer(t *testing.T) {
	apiKey := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/a", v1alpha1.Finalizer, "example.com/b"}}}
	if _, err := strip(apiKey); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{v1alpha1.Finalizer}, apiKey.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

// fillWithMegabytes writes as much as an API server takes into everything that a tenant may write, but the spec.
func fillWithMegabytes(object client.Object) {
	long := strings.Repeat("x", 1<<20)
	many := func(format string) map[string]string {
		all := map[string]string{tenantsecret.Label: long, apikeys.GenerationAnnotation: long}
		for i := range 1000 {
			all[fmt.Sprintf(format, i)] = long[:1000]
		}
		return all
	}
	var finalizers []string
	var owners []metav1.OwnerReference
	for i := range 4500 {
		finalizers = append(finalizers, fmt.Sprintf("example.com/%d%s", i, long[:250]))
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i, long[:250]), UID: "1"})
	}
	owners[0] = metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey", Name: long, UID: types.UID(long), Controller: new(true),
	}
	object.SetFinalizers(finalizers)
	object.SetOwnerReferences(owners)
	object.SetLabels(many("example.com/label-%d"))
	object.SetAnnotations(many("example.com/annotation-%d"))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1(long)}})
	object.SetGenerateName(long)
	object.SetSelfLink(long)
	var conditions []metav1.Condition
	for i := range 8 {
		conditions = append(conditions, metav1.Condition{Type: fmt.Sprint("Theirs", i), Reason: "Theirs", Message: long[:32768]})
	}
	conditions[0].Type, conditions[1].Reason = long[:316], long[:1024]
	switch object := object.(type) {
	case *v1alpha1.ApiKey:
		object.Status.Conditions = conditions
	case *v1alpha1.Merchant:
		object.Status.Conditions = conditions
		object.Status.Webhook = &v1alpha1.WebhookStatus{LastFailure: &v1alpha1.WebhookFailure{Reason: long}}
		object.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: long}}}
	}
}

// heldBytes returns what a value keeps in memory, roughly: what it points to, and the capacity of its slices.
func heldBytes(value reflect.Value) int {
	held := int(value.Type().Size())
	switch value.Kind() { //nolint:exhaustive // the other kinds hold nothing beside their own bytes
	case reflect.String:
		held += value.Len()
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			held += heldBytes(value.Elem())
		}
	case reflect.Slice:
		held += (value.Cap() - value.Len()) * int(value.Type().Elem().Size())
		for i := range value.Len() {
			held += heldBytes(value.Index(i))
		}
	case reflect.Map:
		for _, key := range value.MapKeys() {
			held += heldBytes(key) + heldBytes(value.MapIndex(key))
		}
	case reflect.Struct:
		for _, field := range value.Fields() {
			held += heldBytes(field) - int(field.Type().Size())
		}
	}
	return held
}

// 2,000 objects with 250 KB of annotations each, changed 20 times, cost no more memory than the same
// objects without any. As in an informer, the transform sees each version before the store does, and
// the store is the informer's. The heap is counted after a collection, while the store is in use.
func TestCache_TenantMetadata(t *testing.T) {
	const changes, limit = 20, 64 << 20
	manifest := strings.Repeat("x", 250<<10)
	bare := measureHeap(t, 1, func(client.Object, string) {})
	annotated := measureHeap(t, changes, func(object client.Object, version string) {
		object.SetLabels(map[string]string{tenantsecret.Label: version})
		object.SetAnnotations(map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": version + manifest,
			"merchant-operator.io/note":                        version,
			apikeys.GenerationAnnotation:                       version,
		})
	})
	t.Logf("%d KiB bare, %d KiB annotated", bare>>10, annotated>>10)
	if annotated > bare+limit {
		t.Errorf("%d MiB are in use, %d MiB for the same objects bare", annotated>>20, bare>>20)
	}
}

// measureHeap returns the live bytes that 1,000 Merchants and 1,000 ApiKeys take in an informer's store.
func measureHeap(t *testing.T, versions int, annotate func(object client.Object, version string)) uint64 {
	t.Helper()
	before := liveHeap()
	store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	for version := range versions {
		for i := range 1000 {
			for _, object := range []client.Object{&v1alpha1.Merchant{}, &v1alpha1.ApiKey{}} {
				object.SetNamespace("shops")
				object.SetName(fmt.Sprintf("%s-%d", reflect.TypeOf(object).Elem().Name(), i))
				annotate(object, fmt.Sprintf("%d.%d", version, i))
				stripped, err := strip(object)
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Update(stripped); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	after := liveHeap()
	if n := len(store.ListKeys()); n != 2000 {
		t.Fatalf("%d objects are in the store", n)
	}
	return max(after, before) - before
}

// liveHeap collects twice: values that are shared are freed by the second collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
