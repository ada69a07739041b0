package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is random or looked up differs at each rendering, and Argo CD would apply it for ever.
func TestRenderingTwiceIsTheSame(t *testing.T) {
	for _, values := range []string{"", placed} {
		if diff := cmp.Diff(render(t, values), render(t, values)); diff != "" {
			t.Errorf("with %q (-once +again):\n%s", values, diff)
		}
	}
}

// A manifest the API server rewrites, by a default or by dropping a field, would be written by every sync.
func TestApplyingTwiceWritesOnce(t *testing.T) {
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`
	text := render(t, "apiserver: {trustedProxies: [10.0.0.0/8]}", "ingress: {enabled: true, className: nginx}", "httpRoute: {enabled: true, parentRefs: [{name: public}]}",
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
