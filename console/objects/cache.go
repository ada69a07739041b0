package objects

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// strip keeps what the list shows, so that a tenant's metadata, messages and lists cost no memory.
func strip(cached any) (any, error) {
	switch object := cached.(type) {
	case *v1alpha1.Merchant:
		slim := &v1alpha1.Merchant{Spec: v1alpha1.MerchantSpec{DisplayName: object.Spec.DisplayName, State: object.Spec.State, TimeZone: object.Spec.TimeZone}}
		slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = object.Namespace, object.Name, object.UID, object.ResourceVersion
		if object.Spec.Webhook != nil {
			slim.Spec.Webhook = &v1alpha1.Webhook{}
		}
		if last := lastBlocked(object); !last.IsZero() {
			slim.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{LastSeen: last}}}
		}
		return slim, nil
	case *v1alpha1.ApiKey:
		return stripKey(object), nil
	}
	return cached, nil
}

// lastBlocked is the last request from a blocked address; zero: none.
func lastBlocked(merchant *v1alpha1.Merchant) (last metav1.Time) {
	if merchant.Status.Allowlist != nil {
		for _, block := range merchant.Status.Allowlist.Refused {
			if last.Before(&block.LastSeen) {
				last = block.LastSeen
			}
		}
	}
	return last
}

// stripKey keeps of an ApiKey what may need attention.
func stripKey(key *v1alpha1.ApiKey) *v1alpha1.ApiKey {
	slim := &v1alpha1.ApiKey{Spec: v1alpha1.ApiKeySpec{MerchantRef: key.Spec.MerchantRef}}
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = key.Namespace, key.Name, key.UID, key.ResourceVersion
	for _, trouble := range []string{v1alpha1.KeyLostCondition, v1alpha1.OldKeyInUseCondition, v1alpha1.ExpiringSoonCondition} {
		if meta.IsStatusConditionTrue(key.Status.Conditions, trouble) {
			slim.Status.Conditions = append(slim.Status.Conditions, metav1.Condition{Type: trouble, Status: metav1.ConditionTrue})
		}
	}
	if len(slim.Status.Conditions) > 0 {
		slim.Spec.ExpiresAt = key.Spec.ExpiresAt
		if old := key.Status.PreviousKeys; len(old) > 0 {
			slim.Status.PreviousKeys = []v1alpha1.PreviousKey{{ValidUntil: old[0].ValidUntil}}
		}
	}
	return slim
}

// merchantIndex is the index of the ApiKeys in the cache by the name of their Merchant.
const merchantIndex = "spec.merchantRef.name"

// AwaitCache returns when all Merchants and ApiKeys are in the cache, or ctx has ended.
func (c *Client) AwaitCache(ctx context.Context) error {
	err := c.Cache.IndexField(ctx, &v1alpha1.ApiKey{}, merchantIndex, func(object client.Object) []string {
		key, _ := object.(*v1alpha1.ApiKey)
		return []string{key.Spec.MerchantRef.Name}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("index ApiKeys: %w", err)
	}
	for _, object := range []client.Object{&v1alpha1.Merchant{}, &v1alpha1.ApiKey{}} {
		if _, err := c.Cache.GetInformer(ctx, object); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	c.Cache.WaitForCacheSync(ctx) // also if it has not been started yet, for which GetInformer does not wait
	return nil
}

// KnownMerchants returns the Merchants in the cache. They are not to be changed.
func (c *Client) KnownMerchants(ctx context.Context) ([]v1alpha1.Merchant, error) {
	var known v1alpha1.MerchantList
	if err := c.Cache.List(ctx, &known, client.UnsafeDisableDeepCopy); err != nil {
		return nil, Error("list Merchants", err)
	}
	return known.Items, nil
}

// AllKnownKeys returns the ApiKeys of all Merchants in the cache. They are not to be changed.
func (c *Client) AllKnownKeys(ctx context.Context) ([]v1alpha1.ApiKey, error) {
	return c.listKeys(ctx)
}

// KnownKeys returns the ApiKeys of a Merchant in the cache. They are not to be changed.
func (c *Client) KnownKeys(ctx context.Context, merchant *v1alpha1.Merchant) ([]v1alpha1.ApiKey, error) {
	return c.listKeys(ctx, client.InNamespace(merchant.Namespace), client.MatchingFields{merchantIndex: merchant.Name})
}

func (c *Client) listKeys(ctx context.Context, which ...client.ListOption) ([]v1alpha1.ApiKey, error) {
	var known v1alpha1.ApiKeyList
	if err := c.Cache.List(ctx, &known, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, Error("list ApiKeys", err)
	}
	return known.Items, nil
}

// KeyNames returns the names of a Merchant's ApiKeys, by their key ids.
func (c *Client) KeyNames(ctx context.Context, merchant *v1alpha1.Merchant) (map[string]string, error) {
	keys, err := c.KnownKeys(ctx, merchant)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(keys))
	for _, key := range keys {
		names[published.ID(key.UID)] = key.Name
	}
	return names, nil
}
