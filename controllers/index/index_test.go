package index

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Find returns only the object with that text.
func TestFind(t *testing.T) {
	const keys = 1000 // some share a value
	var objects []client.Object
	byValue := map[string][]client.Object{}
	for i := range keys {
		apiKey := &v1alpha1.ApiKey{}
		apiKey.Namespace, apiKey.Name, apiKey.UID = "shops", fmt.Sprintf("till-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		objects = append(objects, apiKey)
		value := ApiKeys.Values(apiKey)[0]
		byValue[value] = append(byValue[value], apiKey)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&v1alpha1.ApiKey{}, ApiKeys.Field, ApiKeys.Values).Build()
	find := func(id string) (names []string) {
		t.Helper()
		found, err := ApiKeys.Find(t.Context(), cache, published.KeyName(id))
		if err != nil {
			t.Fatal(err)
		}
		for _, apiKey := range found {
			names = append(names, apiKey.Name)
		}
		return names
	}
	shared := 0
	for _, objects := range byValue {
		if len(objects) == 1 {
			continue
		}
		shared++
		for _, want := range objects {
			if diff := cmp.Diff([]string{want.GetName()}, find(published.ID(want.GetUID()))); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		}
	}
	if shared == 0 {
		t.Error("no objects share a value: an index of so many values costs memory")
	}
	if names := find("aaaaaaaaaaaa"); names != nil {
		t.Errorf("found %v for the id of no key", names)
	}
}
