package chart

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/repository"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// openShift is what its security context constraints restricted-v2 demand of a pod: users and groups of the namespace's range.
const openShift = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: openshift}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - expression: "!has(object.spec.securityContext.runAsUser) || (object.spec.securityContext.runAsUser >= 1000680000 && object.spec.securityContext.runAsUser <= 1000689999)"
    message: "runAsUser: must be in the ranges: [1000680000, 1000689999]"
  - expression: "!has(object.spec.securityContext.fsGroup) || object.spec.securityContext.fsGroup >= 1000680000"
    message: "fsGroup is not an allowed group"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: openshift}
spec: {policyName: openshift, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {openshift: "true"}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: openshift, labels: {openshift: "true"}}
`

func TestPods_OpenShift(t *testing.T) {
	kubectl(t, openShift, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, openShift, "delete", "--wait=false", "-f", "-") })
	try := func(name string, template corev1.PodTemplateSpec) error {
		spec := *template.Spec.DeepCopy()
		if name == "merchant-operator-redis" { // whose volume the StatefulSet's controller adds
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "data"})
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift", GenerateName: "try-", Labels: template.Labels}, Spec: spec}
		return cluster.Client.Create(t.Context(), pod, client.DryRunAll)
	}
	for name, template := range templates(t, withConsole) {
		await.Until(t, time.Minute, "the policy refuses the user of "+name, func() bool { return try(name, template) != nil })
	}
	values := example(t, "openshift.yaml")
	for name, template := range templates(t, withConsole, values) {
		if err := try(name, template); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if security := template.Spec.SecurityContext; security.RunAsNonRoot == nil || !*security.RunAsNonRoot {
			t.Errorf("%s may run as root", name)
		}
	}
	egress := get[networkingv1.NetworkPolicy](t, objects(t, render(t, values).stream()), "NetworkPolicy/merchant-operator-apiserver").Spec.Egress
	isDNS := func(port networkingv1.NetworkPolicyPort) bool { return port.Port.IntValue() == 5353 }
	if !slices.ContainsFunc(egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return slices.ContainsFunc(rule.Ports, isDNS) }) {
		t.Errorf("OpenShift's DNS, on port 5353, is not among %v", egress)
	}
}

// A client is its address, unless the load balancer replaces it.
func TestService_KeepsAddresses(t *testing.T) {
	for values, want := range map[string]corev1.ServiceSpec{
		"{type: ClusterIP, loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: a.example/b}": {Type: "ClusterIP"},
		"{type: NodePort}":     {Type: "NodePort", ExternalTrafficPolicy: "Local"},
		"{type: LoadBalancer}": {Type: "LoadBalancer", ExternalTrafficPolicy: "Local"},
		"{type: LoadBalancer, externalTrafficPolicy: Cluster, loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: a.example/b, ipFamilyPolicy: PreferDualStack}": {
			Type: "LoadBalancer", ExternalTrafficPolicy: "Cluster", LoadBalancerSourceRanges: []string{"10.0.0.0/8"}, LoadBalancerClass: new("a.example/b"),
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
		},
	} {
		all := objects(t, render(t, "apiserver: {clientsConnectDirectly: true, service: "+values+"}").stream())
		got := get[corev1.Service](t, all, "Service/merchant-operator-apiserver").Spec
		got.Selector, got.Ports = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

func example(t *testing.T, name string) string {
	t.Helper()
	return repository.Read(t, "charts", "merchant-operator", "examples", name)
}

// Each value file is named in docs/install.md, and the API server takes what the chart makes of it, alone and on OpenShift.
func TestExamples_Applied(t *testing.T) {
	files, err := os.ReadDir(repository.Path("charts", "merchant-operator", "examples"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	install := repository.Read(t, "docs", "install.md")
	for _, file := range files {
		if !strings.Contains(install, "charts/merchant-operator/examples/"+file.Name()+")") {
			t.Errorf("docs/install.md does not link to %s", file.Name())
		}
		for _, more := range []string{"", example(t, "openshift.yaml")} {
			kubectl(t, render(t, example(t, file.Name()), more).stream(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		}
	}
}

// Rights follow the account that a pod has.
func TestServiceAccounts(t *testing.T) {
	const values = `
operator: {serviceAccount: {name: own-operator, annotations: {a.example/role: payments}}}
apiserver: {serviceAccount: {create: false, name: own-api}}
`
	text := render(t, withConsole, values).stream()
	all := objects(t, text)
	account := get[corev1.ServiceAccount](t, all, "ServiceAccount/own-operator")
	if account.Annotations["a.example/role"] != "payments" {
		t.Errorf("the account has the annotations %v", account.Annotations)
	}
	for key, object := range all {
		switch object.GetKind() {
		case "ServiceAccount":
			if key == "ServiceAccount/own-api" || key == "ServiceAccount/merchant-operator" || key == "ServiceAccount/merchant-operator-apiserver" {
				t.Errorf("the chart makes %s", key)
			}
		case "RoleBinding", "ClusterRoleBinding":
			for _, subject := range get[rbacv1.ClusterRoleBinding](t, map[string]*unstructured.Unstructured{key: object}, key).Subjects {
				if subject.Name == "merchant-operator" || subject.Name == "merchant-operator-apiserver" {
					t.Errorf("%s binds %s, which no pod has", key, subject.Name)
				}
			}
		}
	}
	for name, want := range map[string]string{
		"merchant-operator": "own-operator", "merchant-operator-apiserver": "own-api", "merchant-operator-dispatcher": "merchant-operator-dispatcher",
	} {
		if got := templates(t, withConsole, values)[name].Spec.ServiceAccountName; got != want {
			t.Errorf("%s runs as %s", name, got)
		}
	}
	for _, want := range []string{`"system:serviceaccount:` + system + `:own-operator"`, `name: "own-api"`} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %s", want)
		}
	}
}

// Labels for the bill stand on everything, and select nothing.
func TestCommonLabels(t *testing.T) {
	const values = "commonLabels: {app.kubernetes.io/part-of: payments, cost-center: '0012'}"
	with, without := objects(t, render(t, withConsole, values).stream()), objects(t, render(t, withConsole).stream())
	for key, object := range with {
		if got := object.GetLabels(); got["cost-center"] != "0012" || got["app.kubernetes.io/part-of"] != "payments" {
			t.Errorf("%s has the labels %v", key, got)
		}
		selector, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
		before, _, _ := unstructured.NestedMap(one(t, without, key).Object, "spec", "selector")
		if diff := cmp.Diff(before, selector); diff != "" {
			t.Errorf("selector of %s (-before +with):\n%s", key, diff)
		}
	}
	for name, template := range templates(t, withConsole, values) {
		if template.Labels["cost-center"] != "0012" {
			t.Errorf("pods of %s have the labels %v", name, template.Labels)
		}
	}
}

// What platforms add to pods and Deployments.
func TestPods_PlatformValues(t *testing.T) {
	const values = `
nameOverride: pay
revisionHistoryLimit: 3
apiserver:
  autoscaling:
    enabled: true
    metrics: [{type: Pods, pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: "100"}}}]
    behavior: {scaleDown: {stabilizationWindowSeconds: 600}}
  extraVolumes: [{name: ca, configMap: {name: bundle}}]
  extraVolumeMounts: [{name: ca, mountPath: /etc/ssl/own, readOnly: true}]
crds: {keep: false}
`
	all := objects(t, render(t, withConsole, values).stream())
	deployment := get[appsv1.Deployment](t, all, "Deployment/merchant-operator-pay-apiserver")
	if *deployment.Spec.RevisionHistoryLimit != 3 {
		t.Errorf("%d old ReplicaSets are kept", *deployment.Spec.RevisionHistoryLimit)
	}
	pod := deployment.Spec.Template.Spec
	isCA := func(name string) bool { return name == "ca" }
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return isCA(v.Name) && v.ConfigMap.Name == "bundle" }) ||
		!slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return isCA(m.Name) && m.MountPath == "/etc/ssl/own" }) {
		t.Errorf("volumes %v, mounts %v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
	scaler := get[autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler/merchant-operator-pay-apiserver").Spec
	if len(scaler.Metrics) != 2 || scaler.Metrics[1].Pods.Metric.Name != "requests" || *scaler.Behavior.ScaleDown.StabilizationWindowSeconds != 600 {
		t.Errorf("the autoscaler is %+v", scaler)
	}
	for key, object := range all {
		if object.GetKind() == "CustomResourceDefinition" && object.GetAnnotations()["helm.sh/resource-policy"] != "" {
			t.Errorf("%s is kept", key)
		}
	}
}
