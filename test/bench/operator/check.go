package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// check asks the API server whether both contestants have done their work: whoever did less was faster for it.
func (s *stand) check(ctx context.Context) error {
	for _, c := range []contestant{operatorContestant, floorContestant} {
		var keys v1alpha1.ApiKeyList
		if err := s.objects.Get().Namespace(c.tenant()).Resource(keysResource).Do(ctx).Into(&keys); err != nil {
			return err
		}
		ready := 0
		for _, key := range keys.Items {
			if meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition) {
				ready++
			}
		}
		if ready != s.settings.keys {
			return fmt.Errorf("the %s made %d ApiKeys ready, not %d", c, ready, s.settings.keys)
		}
		for namespace, wanted := range map[string]metav1.ListOptions{
			c.tenant():      {},
			c.credentials(): {LabelSelector: published.Label + "=" + published.LabelKey},
		} {
			secrets, err := s.typed.CoreV1().Secrets(namespace).List(ctx, wanted)
			if err != nil {
				return err
			}
			if len(secrets.Items) != s.settings.keys {
				return fmt.Errorf("the %s left %d Secrets in %s, not %d", c, len(secrets.Items), namespace, s.settings.keys)
			}
		}
	}
	return nil
}
