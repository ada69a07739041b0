package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// In selects the objects of the namespace, or of all namespaces.
func (c *Cluster) In(allNamespaces bool) client.InNamespace {
	if allNamespaces {
		return ""
	}
	return client.InNamespace(c.Namespace)
}

// Merchant reads a Merchant.
func (c *Cluster) Merchant(ctx context.Context, name string) (*v1alpha1.Merchant, error) {
	var merchant v1alpha1.Merchant
	return &merchant, c.read(ctx, "Merchant", name, &merchant)
}

// ApiKey reads an ApiKey.
func (c *Cluster) ApiKey(ctx context.Context, name string) (*v1alpha1.ApiKey, error) {
	var key v1alpha1.ApiKey
	return &key, c.read(ctx, "ApiKey", name, &key)
}

func (c *Cluster) read(ctx context.Context, kind, name string, into client.Object) error {
	if err := CheckName(kind, name); err != nil {
		return err
	}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) && !NotInstalled(err) {
		hint := "List them with: kubectl merchant status -n " + c.Namespace + "; -A lists all namespaces."
		if near := c.suggest(ctx, kind, name); near != "" {
			hint = "Do you mean " + near + "? " + hint
		}
		return terminal.Hinted(hint, "there is no %s %s in namespace %s", kind, name, c.Namespace)
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", kind, c.Namespace, name, err)
	}
	return nil
}

// Merchants reads the named Merchant, or all of the namespace or of all namespaces.
func (c *Cluster) Merchants(ctx context.Context, names []string, allNamespaces bool) ([]v1alpha1.Merchant, error) {
	if len(names) > 0 {
		merchant, err := c.Merchant(ctx, names[0])
		return []v1alpha1.Merchant{*merchant}, err
	}
	var merchants v1alpha1.MerchantList
	if err := c.List(ctx, &merchants, c.In(allNamespaces)); err != nil {
		return nil, fmt.Errorf("list Merchants: %w", err)
	}
	return merchants.Items, nil
}

// MerchantKeys returns the ApiKeys of a merchant by name.
func (c *Cluster) MerchantKeys(ctx context.Context, merchant *v1alpha1.Merchant) ([]v1alpha1.ApiKey, error) {
	var list v1alpha1.ApiKeyList
	if err := c.List(ctx, &list, client.InNamespace(merchant.Namespace)); err != nil {
		return nil, fmt.Errorf("list ApiKeys in namespace %s: %w", merchant.Namespace, err)
	}
	keys := slices.DeleteFunc(list.Items, func(key v1alpha1.ApiKey) bool { return key.Spec.MerchantRef.Name != merchant.Name })
	slices.SortFunc(keys, func(a, b v1alpha1.ApiKey) int { return cmp.Compare(a.Name, b.Name) })
	return keys, nil
}

// CheckSecretFree checks that no Secret has a name that the operator is to write. Without the right to read it, the operator finds out.
func (c *Cluster) CheckSecretFree(ctx context.Context, name, hint string) error {
	var secret metav1.PartialObjectMetadata
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &secret); err != nil || secret.DeletionTimestamp != nil {
		return nil //nolint:nilerr // it is not there, or not to be seen
	}
	return terminal.Hinted(hint, "Secret %s/%s already exists, and the operator never overwrites one of somebody else", c.Namespace, name)
}

// ChangeKey writes a change of an ApiKey. A change of its spec since it was read is a conflict: two rotations must not become one.
// Status changes all the time.
func (c *Cluster) ChangeKey(ctx context.Context, key *v1alpha1.ApiKey, edit func(), options ...client.PatchOption) error {
	generation, uid := key.Generation, key.UID
	return retry.OnError(retry.DefaultRetry, func(err error) bool {
		return apierrors.IsConflict(err) && key.Generation == generation && key.UID == uid
	}, func() error {
		before := key.DeepCopy()
		edit()
		err := c.Patch(ctx, key, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
		if apierrors.IsConflict(err) {
			*key = v1alpha1.ApiKey{}
			if readErr := c.Get(ctx, client.ObjectKeyFromObject(before), key); readErr != nil {
				return readErr
			}
		}
		return err
	})
}

// ManagerName names a GitOps tool and its object, such as Flux (Kustomization flux-system/shops); empty: there is none.
func ManagerName(manager gitops.Manager) string {
	if manager.Source == "" {
		return manager.Tool
	}
	return manager.Tool + " (" + manager.Source + ")"
}

// CheckName refuses what cannot be the name of an object.
func CheckName(kind, name string) error {
	const longest = 63
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(name) > longest {
		return terminal.Usage("A name has lower-case letters, digits, - and ., at most 63.", "%q is not the name of %s", name, article(kind))
	}
	return nil
}

// article puts a or an before a kind.
func article(kind string) string {
	if strings.ContainsAny(kind[:1], "AEIOU") {
		return "an " + kind
	}
	return "a " + kind
}
