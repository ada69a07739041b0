package index

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A tenant chooses the digests in its specs. With a known hash it could give all its ApiKeys the value of another's key, and each event of
// that key would compare them all.
func TestValues_ChosenDigests(t *testing.T) {
	const objects = 50
	chosen := func(text string) uint32 { return crc32.ChecksumIEEE([]byte(text)) % values }
	target := chosen(published.KeyName("aaaaaaaaaaaa"))
	distinct := map[string]bool{}
	for i, found := 0, 0; found < objects; i++ {
		digest := apikey.NewDigest(fmt.Sprintf("key-%d", i))
		if chosen(published.DigestClaimName(digest)) != target {
			continue
		}
		found++
		apiKey := &v1alpha1.ApiKey{Spec: v1alpha1.ApiKeySpec{KeyDigest: digest.Hex()}}
		distinct[ApiKeys.Values(apiKey)[1]] = true
	}
	if len(distinct) < objects/2 {
		t.Errorf("%d digests have %d values", objects, len(distinct))
	}
}

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
