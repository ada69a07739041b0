package manifests

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/test/verify/program"
)

// overlay is what a platform team writes that wants the console and monitoring. The components patch what `make generate` renders from
// the chart; test/verify/chart tests all that they do not touch.
const overlay = `
resources: [CONFIG/default]
components: [CONFIG/console, CONFIG/prometheus, CONFIG/prometheus/refunds]
images:
- {name: merchant-operator, newName: registry.example/pay, newTag: 1.2.3}
`

// build returns the objects of the overlay by kind and name, as YAML.
func build(t *testing.T) map[string][]byte {
	t.Helper()
	directory := t.TempDir()
	config, err := filepath.Rel(directory, repository.Path("config"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(overlay, "CONFIG", config)
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := map[string][]byte{}
	for document := range strings.SplitSeq(kubectl(t, "", "kustomize", directory), "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		objects[object.Kind+"/"+object.Name] = []byte(document)
	}
	return objects
}

// decode returns the object of a key; a field that its type does not have fails t.
func decode[T any](t *testing.T, objects map[string][]byte, key string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(objects[key], &object); err != nil || objects[key] == nil {
		t.Fatalf("%s: %v, of %v", key, err, slices.Sorted(maps.Keys(objects)))
	}
	return object
}

// deployments returns the Deployments of the overlay by name.
func deployments(t *testing.T) map[string]appsv1.Deployment {
	t.Helper()
	objects, out := build(t), map[string]appsv1.Deployment{}
	for _, name := range []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-console", "merchant-operator-dispatcher"} {
		out[name] = decode[appsv1.Deployment](t, objects, "Deployment/"+name)
	}
	return out
}

func TestComponents_ArgumentsKnownToProgram(t *testing.T) {
	check := program.New(t)
	for name, deployment := range deployments(t) {
		check(name, deployment.Spec.Template.Spec.Containers[0].Args)
	}
}

// An overlay names the image as the pages show it.
func TestComponents_Image(t *testing.T) {
	for name, deployment := range deployments(t) {
		if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "registry.example/pay:1.2.3" {
			t.Errorf("%s runs %s", name, image)
		}
	}
}

// With monitoring the ops ports serve TLS, only to who may read the metrics, and the kubelet still gets an answer.
func TestPrometheus_OpsPortsClosed(t *testing.T) {
	for name, deployment := range deployments(t) {
		container := deployment.Spec.Template.Spec.Containers[0]
		if !slices.Contains(container.Args, "--secure-metrics") {
			t.Errorf("%s serves its metrics to everybody: %v", name, container.Args)
		}
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
				t.Errorf("%s is probed over %s", name, probe.HTTPGet.Scheme)
			}
		}
	}
}

// With the console the internal port serves TLS, and admits the console. The console gets the certificate authority, and not the key.
func TestConsole_InternalPort(t *testing.T) {
	all := deployments(t)
	directory := flagValue(t, all["merchant-operator-apiserver"], "internal-cert-dir")
	file := flagValue(t, all["merchant-operator-console"], "internal-ca-file")
	for name, want := range map[string]string{"merchant-operator-apiserver": directory, "merchant-operator-console": file} {
		pod := all[name].Spec.Template.Spec
		if len(pod.Volumes) == 0 || pod.Volumes[0].Secret.SecretName != "merchant-operator-internal-tls" {
			t.Fatalf("%s has the volumes %v", name, pod.Volumes)
		}
		got := pod.Containers[0].VolumeMounts[0].MountPath
		for _, item := range pod.Volumes[0].Secret.Items {
			got += "/" + item.Path
		}
		if got != want {
			t.Errorf("%s reads %s, and the Secret is at %s", name, want, got)
		}
	}
	objects := build(t)
	if port := decode[corev1.Service](t, objects, "Service/merchant-operator-apiserver-internal").Spec.Ports[0].Name; port != "https" {
		t.Errorf("the port of the internal Service is called %s", port)
	}
	admitted := func(rule networkingv1.NetworkPolicyIngressRule) bool {
		console := labels.Set(all["merchant-operator-console"].Spec.Template.Labels)
		from := rule.From[0]
		return from.NamespaceSelector == nil && labels.SelectorFromSet(from.PodSelector.MatchLabels).Matches(console) && rule.Ports[0].Port.String() == "internal"
	}
	policy := decode[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy/merchant-operator-apiserver")
	if !slices.ContainsFunc(policy.Spec.Ingress, admitted) {
		t.Errorf("the API admits only %v", policy.Spec.Ingress)
	}
}

// The kubelet inserts the settings from the ConfigMap and the Secret that config/console/kustomization.yaml says to create.
func TestConsole_Settings(t *testing.T) {
	text := repository.Read(t, "config", "console", "kustomization.yaml")
	container := deployments(t)["merchant-operator-console"].Spec.Template.Spec.Containers[0]
	inserted := map[string]bool{}
	for _, variable := range container.Env {
		var name, key string
		switch from := variable.ValueFrom; {
		case from.ConfigMapKeyRef != nil:
			inserted["$("+variable.Name+")"], name, key = true, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key
		default:
			name, key = from.SecretKeyRef.Name, from.SecretKeyRef.Key
		}
		if name == "merchant-operator-console" && !strings.Contains(text, "--from-literal="+key+"=") {
			t.Errorf("%s is %s of %s, which the instructions do not create", variable.Name, key, name)
		}
	}
	named := map[string]bool{}
	for _, reference := range regexp.MustCompile(`\$\(\w+\)`).FindAllString(strings.Join(container.Args, " "), -1) {
		named[reference] = true
	}
	if diff := cmp.Diff(inserted, named); diff != "" || len(named) == 0 {
		t.Errorf("settings (-from the ConfigMap +in the arguments):\n%s", diff)
	}
}

// flagValue returns the value a Deployment's container gives to a flag.
func flagValue(t *testing.T, deployment appsv1.Deployment, name string) string {
	t.Helper()
	for _, argument := range deployment.Spec.Template.Spec.Containers[0].Args {
		if value, found := strings.CutPrefix(argument, "--"+name+"="); found {
			return value
		}
	}
	t.Fatalf("%s has no flag --%s", deployment.Name, name)
	return ""
}
