package kubetest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/discovery"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func TestStart_ServesOurKinds(t *testing.T) {
	environment := kubetest.Start(t)
	client, err := discovery.NewDiscoveryClientForConfig(environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := client.ServerResourcesForGroupVersion("merchant-operator.io/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, resource := range resources.APIResources {
		kinds[resource.Kind] = true
	}
	if diff := cmp.Diff(map[string]bool{"Merchant": true, "ApiKey": true}, kinds); diff != "" {
		t.Errorf("kinds served (-want +got):\n%s", diff)
	}
}

func TestNew_WithoutControlPlane(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	_, _, err := kubetest.New()
	if err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("New() without KUBEBUILDER_ASSETS: %v, want an error that names `make test`", err)
	}
}
