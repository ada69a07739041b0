// Package manifests applies config/ to a real kube-apiserver: it is accepted, its admission policies refuse what they should, and its
// components fit what `make generate` renders from the chart. test/verify/chart tests the rest of that. It has only tests.
package manifests

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	system      = kubetest.SystemNamespace
	credentials = kubetest.CredentialsNamespace
	tenant      = "shops"
)

// cluster is the one control plane of this package's tests, and installed what of config/ they have applied to it.
var (
	cluster   *kubetest.Cluster
	installed = map[string]bool{}
)

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error { cluster = c; return nil })
}

// install applies a directory of config/, unless a test has done so before.
func install(t *testing.T, directory string) {
	t.Helper()
	if !installed[directory] {
		apply(t, directory)
		installed[directory] = true
	}
}

// apply runs `kubectl apply -k config/<directory>` and returns what it printed.
func apply(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	return kubectl(t, "", append([]string{"apply", "-k", repository.Path("config", directory)}, arguments...)...)
}

func kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The directories that are applied one after the other in the local environment.
func TestApply_DirectoriesInOrder(t *testing.T) {
	for _, directory := range []string{"crd", "rbac", "samples"} {
		apply(t, directory)
	}
	for _, directory := range []string{"crd", "rbac", "samples"} {
		assertUnchanged(t, directory)
	}
}

func TestApply_Default(t *testing.T) {
	apply(t, "namespace")
	apply(t, "default", "--server-side", "--force-conflicts", "--dry-run=server")
	apply(t, "default")
	assertUnchanged(t, "default")
}

func TestSamples_Namespaces(t *testing.T) {
	apply(t, "crd")
	printed := strings.Fields(apply(t, "samples", "--output=name"))
	want := []string{
		"namespace/rails",
		"namespace/shops",
		"serviceaccount/card-rail",
		"rolebinding.rbac.authorization.k8s.io/acme-developers",
		"clusterrolebinding.rbac.authorization.k8s.io/merchant-operator-rail:card-rail",
		"apikey.merchant-operator.io/acme-test-1",
		"apikey.merchant-operator.io/acme-till-1",
		"merchant.merchant-operator.io/acme-coffee",
	}
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Errorf("config/samples (-want +got):\n%s", diff)
	}
	for _, resource := range []string{"merchants", "apikeys"} {
		if names := kubectl(t, "", "get", resource, "-n", "shops", "-o", "name"); !strings.Contains(names, "acme-") {
			t.Errorf("no sample among the %s of the namespace shops", resource)
		}
	}
}

func TestSamples_SecondKey(t *testing.T) {
	install(t, "crd")
	install(t, "samples")
	kubectl(t, "", "apply", "--dry-run=server", "-f", repository.Path("config", "samples", "corner-books.yaml"))
}

func TestNamespaces_RestrictedStandard(t *testing.T) {
	install(t, "rbac")
	for _, name := range []string{system, credentials} {
		var namespace corev1.Namespace
		if err := cluster.Client.Get(t.Context(), client.ObjectKey{Name: name}, &namespace); err != nil {
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
	kubectl(t, "", "wait", "flowschemas", "--all", "--for=condition=Dangling=False", "--timeout=1m") // the API server writes it once
	first := apply(t, directory, "--output", versions)
	if diff := cmp.Diff(first, apply(t, directory, "--output", versions)); diff != "" {
		t.Errorf("applying config/%s again writes (-once +again):\n%s", directory, diff)
	}
}

var codeBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Readers copy what the pages show, so the API server is asked whether it takes it.
func TestDocs_ManifestsAccepted(t *testing.T) {
	install(t, "crd")
	install(t, "samples") // for its namespace
	for _, page := range []string{"merchant.md", "apikey.md"} {
		manifests := 0
		for _, block := range codeBlock.FindAllStringSubmatch(repository.Read(t, "docs", page), -1) {
			if !strings.HasPrefix(block[1], "apiVersion:") {
				continue // a fragment
			}
			manifests++
			kubectl(t, block[1], "apply", "--dry-run=server", "-f", "-")
		}
		if manifests < 2 {
			t.Errorf("docs/%s shows %d manifests, want the smallest and the full one", page, manifests)
		}
	}
}
