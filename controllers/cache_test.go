package controllers

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

func TestStripKeepsWhatTheOperatorReads(t *testing.T) {
	secret := func() *metav1.PartialObjectMetadata {
		secret := tenantsecret.Metadata()
		secret.ObjectMeta = metav1.ObjectMeta{
			Name: "till-key", Namespace: "shops", UID: "1", ResourceVersion: "2", Finalizers: []string{"example.com/theirs"},
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

func TestStripSharesWhatMostApiKeysHave(t *testing.T) {
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

// 2,000 objects with 250 KB of annotations each, changed 20 times, cost no more memory than the same
// objects without any. As in an informer, the transform sees each version before the store does, and
// the store is the informer's. The heap is counted after a collection, while the store is in use.
func TestWhatTenantsWriteIntoMetadataCostsNoMemory(t *testing.T) {
	const changes, limit = 20, 64 << 20
	manifest := strings.Repeat("x", 250<<10)
	bare := heapOf(t, 1, func(client.Object, string) {})
	annotated := heapOf(t, changes, func(object client.Object, version string) {
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

// heapOf returns the live bytes that 1,000 Merchants and 1,000 ApiKeys take in an informer's store.
func heapOf(t *testing.T, versions int, annotate func(object client.Object, version string)) uint64 {
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
