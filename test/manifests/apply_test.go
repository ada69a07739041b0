package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The directories that are applied one after the other in the local environment.
func TestDirectoriesApplyOneByOne(t *testing.T) {
	for _, directory := range []string{"crd", "rbac", "samples"} {
		apply(t, directory)
	}
	for _, directory := range []string{"crd", "rbac", "samples"} {
		assertUnchanged(t, directory)
	}
}

func TestDefaultApplies(t *testing.T) {
	apply(t, "namespace")
	apply(t, "default", "--server-side", "--force-conflicts", "--dry-run=server")
	apply(t, "default")
	assertUnchanged(t, "default")
}

func TestSamplesStayInTheirNamespaces(t *testing.T) {
	apply(t, "crd")
	printed := strings.Fields(apply(t, "samples", "--output=name"))
	want := []string{
		"namespace/rails",
		"namespace/shops",
		"serviceaccount/card-rail",
		"clusterrolebinding.rbac.authorization.k8s.io/merchant-operator-rail:card-rail",
		"apikey.merchant-operator.io/acme-till-1",
		"merchant.merchant-operator.io/acme-coffee",
	}
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Errorf("config/samples (-want +got):\n%s", diff)
	}
	for _, resource := range []string{"merchants", "apikeys"} {
		raw, err := clientset.RESTClient().Get().
			AbsPath("/apis/merchant-operator.io/v1alpha1/namespaces/shops", resource).
			DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "acme-") {
			t.Errorf("no sample among the %s of the namespace shops", resource)
		}
	}
}

func TestTheSecondSampleIsAccepted(t *testing.T) {
	apply(t, "crd")
	apply(t, "samples")
	kubectl(t, "apply", "--dry-run=server", "-f", config("samples", "corner-books.yaml"))
}

func TestNamespacesHoldPodsToTheRestrictedStandard(t *testing.T) {
	apply(t, "rbac")
	for _, name := range []string{"merchant-operator-system", "merchant-operator-credentials"} {
		namespace, err := clientset.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
			t.Errorf("namespace %s enforces %q, want restricted", name, got)
		}
	}
}

// assertUnchanged applies the directory twice more: a manifest the API server rewrites, by a default or by
// dropping a field, would be written by every apply, and GitOps tools would show it out of sync.
func assertUnchanged(t *testing.T, directory string) {
	t.Helper()
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`
	first := apply(t, directory, "--output", versions)
	if diff := cmp.Diff(first, apply(t, directory, "--output", versions)); diff != "" {
		t.Errorf("applying config/%s again writes (-once +again):\n%s", directory, diff)
	}
}
