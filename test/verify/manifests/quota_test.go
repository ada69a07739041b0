package manifests

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The quota for a tenant's namespace bounds the number of the objects that a tenant makes the operator
// hold. A misspelt name would bound nothing, and the API server would accept it.
func TestQuota(t *testing.T) {
	var quota corev1.ResourceQuota
	if err := yaml.UnmarshalStrict([]byte(repository.Read(t, "docs/examples/quota.yaml")), &quota); err != nil {
		t.Fatal(err)
	}
	group := v1alpha1.SchemeGroupVersion.Group
	for _, name := range []string{"merchants." + group, "apikeys." + group, "secrets"} {
		if limit, bounded := quota.Spec.Hard[corev1.ResourceName("count/"+name)]; !bounded || limit.Sign() <= 0 {
			t.Errorf("the number of %s has no bound", name)
		}
	}
	if len(quota.Spec.Hard) != 3 {
		t.Errorf("bounds of %v", quota.Spec.Hard)
	}
}
