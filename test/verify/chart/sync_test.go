package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// What is random or looked up differs at each rendering, and Argo CD would apply it for ever.
func TestRenderingTwiceIsTheSame(t *testing.T) {
	for _, values := range []string{"", placed} {
		if diff := cmp.Diff(render(t, withConsole, values), render(t, withConsole, values)); diff != "" {
			t.Errorf("with %q (-once +again):\n%s", values, diff)
		}
	}
}

// A manifest the API server rewrites, by a default or by dropping a field, would be written by every sync.
func TestApplyingTwiceWritesOnce(t *testing.T) {
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`
	text := render(t, withConsole, "console: {ingress: {enabled: true}, httpRoute: {enabled: true, parentRefs: [{name: public}]}}", "apiserver: {trustedProxies: [10.0.0.0/8]}", "ingress: {enabled: true, className: nginx}", "httpRoute: {enabled: true, parentRefs: [{name: public}]}",
		"apiserver: {autoscaling: {enabled: true}}", "rails: [{namespace: rails, serviceAccountName: card}]", placed).stream()
	first := kubectl(t, text, "apply", "-f", "-", "-o", versions)
	t.Cleanup(func() { kubectl(t, withoutKept(text), "delete", "--ignore-not-found", "-f", "-") })
	if diff := cmp.Diff(first, kubectl(t, text, "apply", "-f", "-", "-o", versions)); diff != "" {
		t.Errorf("applying it again writes (-once +again):\n%s", diff)
	}
}

// withoutKept is what helm uninstall removes; without controllers, a Namespace would never be gone.
func withoutKept(text string) string {
	var removed []string
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if !strings.Contains(document, "helm.sh/resource-policy: keep") {
			removed = append(removed, document)
		}
	}
	return strings.Join(removed, "\n---")
}

func TestTheCRDsAreThoseOfTheTypesAndAreKept(t *testing.T) {
	all := objects(t, render(t, "").stream())
	for _, plural := range []string{"merchants", "apikeys"} {
		text := repository.Read(t, "config", "crd", "bases", "merchant-operator.io_"+plural+".yaml")
		var want map[string]any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got := one(t, all, "CustomResourceDefinition/"+plural+".merchant-operator.io")
		if diff := cmp.Diff(want["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s is not that of config/crd; run `make generate` (-want +got):\n%s", plural, diff)
		}
		if got.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s, and with it every object, is gone after helm uninstall", plural)
		}
	}
	if one(t, all, "Namespace/"+credentials).GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Error("the credentials namespace, and with it every key, is gone after helm uninstall")
	}
}

// The policy matches what config/deletion-policy has; a release that watches some namespaces leaves the others alone.
func TestTheDeletionPolicyIsThatOfConfig(t *testing.T) {
	const name = "merchant-operator-merchant-deletion"
	want := objects(t, repository.Read(t, "config", "deletion-policy", "policy.yaml"))
	all := objects(t, render(t, "merchantDeletionPolicy: {enabled: true}").stream())
	for _, kind := range []string{"ValidatingAdmissionPolicy/", "ValidatingAdmissionPolicyBinding/"} {
		got := one(t, all, kind+name)
		if diff := cmp.Diff(one(t, want, kind+name).Object["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s is not that of config/deletion-policy; run `make generate` (-want +got):\n%s", kind, diff)
		}
	}

	some := objects(t, render(t, "merchantDeletionPolicy: {enabled: true}", "watchNamespaces: [shops]").stream())
	binding := one(t, some, "ValidatingAdmissionPolicyBinding/"+name)
	namespaces, _, err := unstructured.NestedSlice(binding.Object, "spec", "matchResources", "namespaceSelector", "matchExpressions")
	if err != nil {
		t.Fatal(err)
	}
	only := []any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{"shops"}}}
	if diff := cmp.Diff(only, namespaces); diff != "" {
		t.Errorf("namespaces of the policy (-want +got):\n%s", diff)
	}
}
