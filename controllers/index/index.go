// Package index finds objects in the caches by a text that one object has, such as the UID of its owner.
//
// For each value an index of controller-runtime takes 500 bytes, about as much as a cached object. So the texts share a limited number
// of values, and a lookup compares the objects that it finds.
package index

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Index finds objects of one kind.
type Index[O client.Object] struct {
	Field string
	// Texts returns those of an object.
	Texts func(O) []string
	// Empty returns an object and a list for the cache to recognize.
	Empty func() (O, client.ObjectList)
}

// ApiKeys finds an ApiKey by the name of its published Secret, because the content of the Secret may be damaged. It also finds those
// with a spec.keyDigest by the name of its claim, which may belong to another ApiKey.
var ApiKeys = Index[*v1alpha1.ApiKey]{
	Field: "published.name",
	Texts: func(apiKey *v1alpha1.ApiKey) []string {
		names := []string{published.KeyName(published.ID(apiKey.UID))}
		if apiKey.Spec.KeyDigest != "" {
			if digest, err := apikey.ParseDigest(apiKey.Spec.KeyDigest); err == nil {
				names = append(names, published.DigestClaimName(digest))
			}
		}
		return names
	},
	Empty: func() (*v1alpha1.ApiKey, client.ObjectList) { return &v1alpha1.ApiKey{}, &v1alpha1.ApiKeyList{} },
}

// Merchants finds a Merchant by the name of a published object. No Secret of a key has one of them.
var Merchants = Index[*v1alpha1.Merchant]{
	Field: "published.name",
	Texts: func(merchant *v1alpha1.Merchant) []string {
		id := published.ID(merchant.UID)
		return []string{published.MerchantName(id), published.WebhookName(id)}
	},
	Empty: func() (*v1alpha1.Merchant, client.ObjectList) { return &v1alpha1.Merchant{}, &v1alpha1.MerchantList{} },
}

// Add adds the index to a cache.
func (i Index[O]) Add(ctx context.Context, cache client.FieldIndexer) error {
	object, _ := i.Empty()
	if err := cache.IndexField(ctx, object, i.Field, i.Values); err != nil {
		return fmt.Errorf("add the index %s: %w", i.Field, err)
	}
	return nil
}

// Values returns the values of an object in the index.
func (i Index[O]) Values(object client.Object) []string {
	typed, ok := object.(O)
	if !ok {
		return nil
	}
	var values []string
	for _, text := range i.Texts(typed) {
		values = append(values, hashText(text))
	}
	return values
}

// Find returns the objects with this text. They belong to the cache, so nobody may change them.
func (i Index[O]) Find(ctx context.Context, cache client.Reader, text string, options ...client.ListOption) ([]O, error) {
	_, list := i.Empty()
	options = append(options, client.MatchingFields{i.Field: hashText(text)}, client.UnsafeDisableDeepCopy)
	if err := cache.List(ctx, list, options...); err != nil {
		return nil, err
	}
	var found []O
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(O); ok && slices.Contains(i.Texts(object), text) {
			found = append(found, object)
		}
		return nil
	})
	return found, err
}

// values is the number of values of an index: for 6 objects each, if there are 100,000.
const values = 16384

// seed is another one in each process: a tenant chooses the digests in its specs, and with a known hash could give thousands of its objects
// the value of another's key, whose every event would compare them all.
var seed = maphash.MakeSeed()

// hashText returns the value under which an index has a text.
func hashText(text string) string { return strconv.FormatUint(maphash.String(seed, text)%values, 10) }
