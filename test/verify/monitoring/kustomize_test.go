package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kustomized is config/default with the components of console and monitoring, as docs/observability.md shows; by kind and name.
func kustomized(t *testing.T) map[string][]byte {
	t.Helper()
	directory := t.TempDir()
	path := func(name string) string {
		relative, err := filepath.Rel(directory, repository.Path("config", name))
		if err != nil {
			t.Fatal(err)
		}
		return relative
	}
	text := "resources: [" + path("default") + "]\ncomponents: [" + path("console") + ", " + path("prometheus") + ", " + path("prometheus/refunds") + "]\n"
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", directory).Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string][]byte{}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		var head corev1.ObjectReference // its kind and, in metadata, its name
		var named struct {
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(document), &named); err != nil {
			t.Fatal(err)
		}
		objects[head.Kind+"/"+named.Metadata.Name] = []byte(document)
	}
	return objects
}

func TestKustomizeWatchesAllPorts(t *testing.T) {
	objects := kustomized(t)
	for _, name := range []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-console", "merchant-operator-dispatcher"} {
		var deployment appsv1.Deployment
		if err := yaml.UnmarshalStrict(objects["Deployment/"+name], &deployment); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		if !slices.Contains(container.Args, "--secure-metrics") {
			t.Errorf("%s shows its metrics to everybody", name)
		}
		if container.LivenessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || container.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s is probed in the clear", name)
		}
	}
	var monitor monitoringv1.ServiceMonitor
	if err := yaml.UnmarshalStrict(objects["ServiceMonitor/merchant-operator"], &monitor); err != nil {
		t.Fatal(err)
	}
	var service corev1.Service
	if err := yaml.UnmarshalStrict(objects["Service/merchant-operator-ops"], &service); err != nil {
		t.Fatal(err)
	}
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[label] != value || service.Spec.Ports[0].Name != monitor.Spec.Endpoints[0].Port {
			t.Errorf("the ServiceMonitor does not find the Service of the ops ports by %s=%s", label, value)
		}
	}
	for _, key := range []string{"PrometheusRule/merchant-operator", "PrometheusRule/merchant-operator-refunds", "ConfigMap/merchant-operator-dashboard", "ClusterRole/merchant-operator-metrics-reader"} {
		if objects[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
}
