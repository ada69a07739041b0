package chart

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selectsOnly fails unless the labels select the pods of these names and no others.
func selectsOnly(t *testing.T, what string, selector map[string]string, want ...string) {
	t.Helper()
	var got []string
	for name, template := range templates(t) {
		if labels.SelectorFromSet(selector).Matches(labels.Set(template.Labels)) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods that %s selects (-want +got):\n%s", what, diff)
	}
}

func TestServicesReachTheirPodsAndNoOthers(t *testing.T) {
	all := objects(t, render(t, "").stream())
	for name, want := range map[string][]string{
		"merchant-operator-apiserver":          {"merchant-operator-apiserver"},
		"merchant-operator-apiserver-internal": {"merchant-operator-apiserver"},
		"merchant-operator-ops":                roles,
		"merchant-operator-redis":              {"merchant-operator-redis"},
	} {
		service := get[corev1.Service](t, all, "Service/"+name)
		selectsOnly(t, "the Service "+name, service.Spec.Selector, want...)
		for _, pod := range want {
			container := templates(t)[pod].Spec.Containers[0]
			named := func(p corev1.ContainerPort) bool {
				return p.Name == service.Spec.Ports[0].TargetPort.String() && p.ContainerPort == service.Spec.Ports[0].Port
			}
			if len(service.Spec.Ports) != 1 || !slices.ContainsFunc(container.Ports, named) {
				t.Errorf("%s has no port that the Service %s names", pod, name)
			}
		}
	}
}
