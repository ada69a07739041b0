package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/test/verify/program"
)

// The namespace enforces the restricted Pod Security Standard, so the API server refuses a pod that does not
// keep it. A Deployment would be accepted, and then never get its pods.
func TestPods_RestrictedStandard(t *testing.T) {
	for _, deployment := range deployments(t) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, GenerateName: deployment.Name + "-", Labels: deployment.Spec.Template.Labels},
			Spec:       deployment.Spec.Template.Spec,
		}
		if err := cluster.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a pod of %s: %v", deployment.Name, err)
		}
	}
}

func TestServices_SelectTheirPods(t *testing.T) {
	pods := deployments(t)
	var services corev1.ServiceList
	list(t, &services)
	reached := map[string][]string{}
	for _, service := range services.Items {
		selector := labels.SelectorFromSet(service.Spec.Selector)
		for _, deployment := range pods {
			if !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
				continue
			}
			reached[service.Name] = append(reached[service.Name], deployment.Name)
			container := deployment.Spec.Template.Spec.Containers[0]
			for _, port := range service.Spec.Ports {
				named := func(p corev1.ContainerPort) bool {
					return p.Name == port.TargetPort.String() && p.ContainerPort == port.Port
				}
				if !slices.ContainsFunc(container.Ports, named) {
					t.Errorf("service %s: %s has no port %s numbered %d", service.Name, deployment.Name, port.TargetPort.String(), port.Port)
				}
			}
		}
	}
	want := map[string][]string{
		"merchant-operator-apiserver":          {"merchant-operator-apiserver"},
		"merchant-operator-apiserver-internal": {"merchant-operator-apiserver"},
		"merchant-operator-console":            {"merchant-operator-console"},
		"merchant-operator-ops":                {"merchant-operator", "merchant-operator-apiserver", "merchant-operator-console", "merchant-operator-dispatcher"},
	}
	for _, names := range reached {
		slices.Sort(names) // the order of Deployments is nobody's promise
	}
	if diff := cmp.Diff(want, reached); diff != "" {
		t.Errorf("services and the Deployments they reach (-want +got):\n%s", diff)
	}
}

func TestDisruptionBudgets(t *testing.T) {
	budgets := map[string]bool{}
	for _, deployment := range deployments(t) {
		var budget policyv1.PodDisruptionBudget
		read(t, system, deployment.Name, &budget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		budgets[deployment.Name] = selector.Matches(labels.Set(deployment.Spec.Template.Labels))
	}
	want := map[string]bool{"merchant-operator": true, "merchant-operator-apiserver": true, "merchant-operator-console": true, "merchant-operator-dispatcher": true}
	if diff := cmp.Diff(want, budgets); diff != "" {
		t.Errorf("Deployments with a budget (-want +got):\n%s", diff)
	}
}

func TestPods_HaveWhatTheyNeed(t *testing.T) {
	accounts := map[string]string{}
	for _, deployment := range deployments(t) {
		pod := deployment.Spec.Template.Spec
		accounts[deployment.Name] = pod.ServiceAccountName
		read(t, system, pod.ServiceAccountName, &corev1.ServiceAccount{})
		if *deployment.Spec.Replicas < 2 {
			t.Errorf("%s has %d replicas, want at least 2", deployment.Name, *deployment.Spec.Replicas)
		}
		container := pod.Containers[0]
		if options := pod.DNSConfig.Options; len(options) != 1 || options[0].Name != "ndots" || *options[0].Value != "1" {
			t.Errorf("%s resolves names with %v", deployment.Name, options)
		}
		if container.LivenessProbe.HTTPGet.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s is not probed at /healthz and /readyz", deployment.Name)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s bounds no memory or requests no CPU", deployment.Name)
		}
		if !*container.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s can write to its own file system", deployment.Name)
		}
		for _, variable := range container.Env {
			if variable.Value != "" {
				t.Errorf("%s has the value of %s in its manifest", deployment.Name, variable.Name)
			}
		}
	}
	want := map[string]string{
		"merchant-operator":            "merchant-operator",
		"merchant-operator-apiserver":  "merchant-operator-apiserver",
		"merchant-operator-console":    "merchant-operator-console",
		"merchant-operator-dispatcher": "merchant-operator-dispatcher",
	}
	if diff := cmp.Diff(want, accounts); diff != "" {
		t.Errorf("Deployments and their service accounts (-want +got):\n%s", diff)
	}
}

// The manifests and the program must not drift apart.
func TestArguments_KnownToProgram(t *testing.T) {
	check := program.New(t)
	for name, deployment := range deployments(t) {
		check(name, deployment.Spec.Template.Spec.Containers[0].Args)
	}
}

// The kubelet kills what is left at the end of the grace period, and requests with it.
func TestPods_GracePeriodExceedsDrain(t *testing.T) {
	const requests = 30 * time.Second // for those under way when the listener closes
	for _, name := range []string{"merchant-operator-apiserver", "merchant-operator-console"} {
		deployment := deployments(t)[name]
		drain, err := time.ParseDuration(flagValue(t, deployment, "drain-delay"))
		if err != nil {
			t.Fatal(err)
		}
		grace := time.Duration(*deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		if grace < drain+requests {
			t.Errorf("the grace period of %s is %s, want at least the drain of %s and %s for requests", name, grace, drain, requests)
		}
	}
}

// With the console the internal port serves TLS. The console gets the certificate authority, and not the key.
func TestInternalPort_TLSForConsole(t *testing.T) {
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
	var service corev1.Service
	read(t, system, "merchant-operator-apiserver-internal", &service)
	if service.Spec.Ports[0].Name != "https" {
		t.Errorf("the port of the internal Service is called %s", service.Spec.Ports[0].Name)
	}
}

// The console sends a token that only the API accepts, so an apiserver can do nothing with it at the Kubernetes API.
func TestConsole_TokenForTheInternalPort(t *testing.T) {
	all := deployments(t)
	audience := flagValue(t, all["merchant-operator-apiserver"], "internal-audience")
	pod := all["merchant-operator-console"].Spec.Template.Spec
	mount, volume := pod.Containers[0].VolumeMounts[1], pod.Volumes[1]
	token := volume.Projected.Sources[0].ServiceAccountToken
	if audience == "" || token.Audience != audience || mount.Name != volume.Name {
		t.Errorf("the API wants %q, and the console has %+v, mounted as %+v", audience, token, mount)
	}
	if got := flagValue(t, all["merchant-operator-console"], "internal-token-file"); got != mount.MountPath+"/"+token.Path {
		t.Errorf("the console reads %s", got)
	}
}

// An installation without Helm has the NetworkPolicies too.
func TestDefault_HasNetworkPolicies(t *testing.T) {
	for name := range deployments(t) {
		var policy networkingv1.NetworkPolicy
		read(t, system, name, &policy)
		if len(policy.Spec.PolicyTypes) != 2 {
			t.Errorf("%s leaves a direction open: %v", name, policy.Spec.PolicyTypes)
		}
	}
}

// deployments applies config/default with the component config/console and returns its Deployments by name, as the API server stored
// them.
func deployments(t *testing.T) map[string]appsv1.Deployment {
	t.Helper()
	if !installed["default with console"] {
		directory := t.TempDir()
		path := func(name string) string {
			relative, err := filepath.Rel(directory, repository.Path("config", name))
			if err != nil {
				t.Fatal(err)
			}
			return relative
		}
		text := "resources: [" + path("default") + "]\ncomponents: [" + path("console") + "]\n"
		if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", directory)
		installed["default with console"] = true
	}
	var stored appsv1.DeploymentList
	list(t, &stored)
	out := map[string]appsv1.Deployment{}
	for _, deployment := range stored.Items {
		out[deployment.Name] = deployment
	}
	if len(out) == 0 {
		t.Fatal("config/default has no Deployments")
	}
	return out
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

// read gets an object of the API server.
func read(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	if err := cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

// list gets all objects of a kind in the programs' namespace.
func list(t *testing.T, into client.ObjectList) {
	t.Helper()
	if err := cluster.Client.List(t.Context(), into, client.InNamespace(system)); err != nil {
		t.Fatal(err)
	}
}
