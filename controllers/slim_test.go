package controllers

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

func TestSlimKeepsAllButTheManagedFields(t *testing.T) {
	deliveredSecret := func() *metav1.PartialObjectMetadata {
		secret := deliveries.Metadata()
		secret.ObjectMeta = metav1.ObjectMeta{
			Name: "till-key", Namespace: "shops", UID: "1", ResourceVersion: "2",
			Labels:          map[string]string{deliveries.Label: deliveries.LabelKey},
			Annotations:     map[string]string{"merchant-operator.io/generation": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "merchant-operator.io/v1alpha1", Kind: "ApiKey", Name: "till", UID: "3"}},
		}
		return secret
	}
	var s slim
	first, second := deliveredSecret(), deliveredSecret()
	first.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
	for _, secret := range []*metav1.PartialObjectMetadata{first, second} {
		if _, err := s.transform(secret); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(deliveredSecret(), secret); diff != "" {
			t.Errorf("in the cache (-want +got):\n%s", diff)
		}
	}
	if reflect.ValueOf(first.Labels).Pointer() != reflect.ValueOf(second.Labels).Pointer() {
		t.Error("two Secrets of one label have a map each")
	}
}

func TestSlimSharesNothingOfTheTenants(t *testing.T) {
	for desc, labels := range map[string]map[string]string{
		"a label of theirs":       {"app": "till"},
		"one beside the operator": {deliveries.Label: deliveries.LabelKey, "app": "till"},
		"none":                    nil,
	} {
		var s slim
		secret := deliveries.Metadata()
		secret.Labels = labels
		if _, err := s.transform(secret); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(labels, secret.Labels); diff != "" {
			t.Errorf("%s (-want +got):\n%s", desc, diff)
		}
		s.maps.Range(func(key, _ any) bool {
			t.Errorf("%s: %v is remembered", desc, key)
			return false
		})
	}
}
