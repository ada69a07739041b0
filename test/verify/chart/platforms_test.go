package chart

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/repository"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// The values that docs/install.md has for OpenShift.
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
	values := ""
	for _, block := range valuesBlock.FindAllStringSubmatch(repository.Read(t, "docs", "install.md"), -1) {
		if strings.Contains(block[2], "runAsUser: null") {
			values = block[2]
		}
	}
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
