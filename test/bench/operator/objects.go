package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// contestant works in namespaces of its own, on objects that are alike.
type contestant string

const (
	operatorContestant contestant = "operator"
	floorContestant    contestant = "floor"
)

func (c contestant) tenant() string      { return "shops-" + string(c) }
func (c contestant) credentials() string { return "credentials-" + string(c) }

// The resources of the API group, and the subresource that the operator writes.
const (
	merchantsResource = "merchants"
	keysResource      = "apikeys"
	statusSubresource = "status"
)

// creators are how many objects are created at a time before the clock starts.
const creators = 16

// world are the objects of a contestant, as the API server answered to their creation.
type world struct {
	contestant
	merchants []*v1alpha1.Merchant
	keys      []*v1alpha1.ApiKey
}

// create creates the objects of a contestant.
func (s *stand) create(ctx context.Context, c contestant) (world, error) {
	w := world{contestant: c, merchants: make([]*v1alpha1.Merchant, s.settings.merchants), keys: make([]*v1alpha1.ApiKey, s.settings.keys)}
	err := each(ctx, creators, len(w.merchants), func(ctx context.Context, i int) error {
		w.merchants[i] = &v1alpha1.Merchant{}
		return s.objects.Post().Namespace(c.tenant()).Resource(merchantsResource).Body(&v1alpha1.Merchant{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Merchant"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("merchant-%d", i)},
			Spec: v1alpha1.MerchantSpec{
				DisplayName: fmt.Sprintf("Merchant %d", i),
				IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"},
			},
		}).Do(ctx).Into(w.merchants[i])
	})
	if err != nil {
		return w, fmt.Errorf("create Merchants: %w", err)
	}
	err = each(ctx, creators, len(w.keys), func(ctx context.Context, i int) error {
		w.keys[i] = &v1alpha1.ApiKey{}
		return s.objects.Post().Namespace(c.tenant()).Resource(keysResource).Body(&v1alpha1.ApiKey{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("till-%d", i)},
			Spec: v1alpha1.ApiKeySpec{
				MerchantRef: v1alpha1.MerchantReference{Name: w.merchants[i%len(w.merchants)].Name},
			},
		}).Do(ctx).Into(w.keys[i])
	})
	if err != nil {
		return w, fmt.Errorf("create ApiKeys: %w", err)
	}
	return w, nil
}

// merchantOf is the Merchant of the i-th ApiKey.
func (w world) merchantOf(i int) *v1alpha1.Merchant { return w.merchants[i%len(w.merchants)] }
