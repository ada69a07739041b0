package operator

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/pager"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// check fails unless each ApiKey is ready and got exactly one key: the delivered one, of generation 1. A side that did less would
// seem faster.
func (b *bench) check(ctx context.Context, s side, keys int) {
	delivered := map[string]apikey.Digest{} // by key id
	b.eachSecret(ctx, s.tenant(), tenantsecret.Label+"="+tenantsecret.LabelKey, func(secret *corev1.Secret) error {
		key, err := apikey.Parse(string(secret.Data["apiKey"]))
		if err == nil {
			delivered[key.ID()] = key.Digest()
		}
		return err
	})
	issued := map[string]bool{} // by key id
	b.eachSecret(ctx, s.credentials(), published.Label+"="+published.LabelKey, func(secret *corev1.Secret) error {
		record, err := published.DecodeKey(secret)
		if err == nil && (record.Generation != 1 || !record.Current.Digest.Equal(delivered[record.KeyID])) {
			err = errors.New("the published key is not the delivered one, or not the first")
		}
		issued[record.KeyID] = true
		return err
	})
	ready := 0
	fixture.Check(each(ctx, func(options metav1.ListOptions) (runtime.Object, error) {
		list := &v1alpha1.ApiKeyList{}
		return list, b.custom.Get().Namespace(s.tenant()).Resource(keysResource).SpecificallyVersionedParams(&options, scheme.ParameterCodec, corev1.SchemeGroupVersion).Do(ctx).Into(list)
	}, func(key *v1alpha1.ApiKey) error {
		if meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition) && issued[key.Status.KeyID] {
			ready++
		}
		return nil
	}))
	if ready != keys || len(delivered) != keys || len(issued) != keys {
		fixture.Check(fmt.Errorf("of %d ApiKeys the %s made %d ready, delivered %d and published %d", keys, s, ready, len(delivered), len(issued)))
	}
}

func (b *bench) eachSecret(ctx context.Context, namespace, selector string, do func(*corev1.Secret) error) {
	fixture.Check(each(ctx, func(options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = selector
		return b.Kube.CoreV1().Secrets(namespace).List(ctx, options)
	}, do))
}

// each lists objects in pages.
func each[O metav1.Object](ctx context.Context, list func(metav1.ListOptions) (runtime.Object, error), do func(O) error) error {
	return pager.New(pager.SimplePageFunc(list)).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		object, ok := item.(O)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		if err := do(object); err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		return nil
	})
}
