package chart

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var roles = []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-dispatcher"}

// templates are the pods of everything the chart runs, by name.
func templates(t *testing.T, values ...string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	all := objects(t, render(t, values...).stream())
	out := map[string]corev1.PodTemplateSpec{}
	for key := range all {
		if name, found := strings.CutPrefix(key, "Deployment/"); found {
			out[name] = get[appsv1.Deployment](t, all, key).Spec.Template
		}
		if name, found := strings.CutPrefix(key, "StatefulSet/"); found {
			out[name] = get[appsv1.StatefulSet](t, all, key).Spec.Template
		}
	}
	return out
}

// The namespace enforces the restricted Pod Security Standard, so the API server refuses a pod that does not
// keep it. A Deployment would be accepted, and then never get its pods.
func TestPodsKeepTheRestrictedStandard(t *testing.T) {
	for _, values := range []string{"", placed, "redis: {bundled: {persistence: {enabled: false}}}", "redis: {type: Server, addresses: ['a:1'], tls: {enabled: true, caSecretName: ca}}"} {
		for name, template := range templates(t, values) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, GenerateName: name + "-", Labels: template.Labels}, Spec: template.Spec}
			if name == "merchant-operator-redis" { // whose volume the StatefulSet's controller adds
				pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			}
			if err := cluster.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("a pod of %s with %q: %v", name, values, err)
			}
		}
	}
}

func TestPodsHaveWhatTheyNeed(t *testing.T) {
	all := objects(t, render(t, "").stream())
	for _, name := range roles {
		deployment := get[appsv1.Deployment](t, all, "Deployment/"+name)
		pod := deployment.Spec.Template.Spec
		if pod.ServiceAccountName != name {
			t.Errorf("%s runs as %s", name, pod.ServiceAccountName)
		}
		get[corev1.ServiceAccount](t, all, "ServiceAccount/"+name)
		if *deployment.Spec.Replicas < 2 {
			t.Errorf("%s has %d replicas, want at least 2", name, *deployment.Spec.Replicas)
		}
		container := pod.Containers[0]
		if container.LivenessProbe.HTTPGet.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s is not probed at /healthz and /readyz", name)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s bounds no memory or requests no CPU", name)
		}
		if !*container.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s can write to its own file system", name)
		}
		if len(pod.TopologySpreadConstraints) != 2 {
			t.Errorf("%s is spread over %d kinds of places, want nodes and zones", name, len(pod.TopologySpreadConstraints))
		}
		budget := get[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget/"+name)
		selectsOnly(t, "the budget of "+name, budget.Spec.Selector.MatchLabels, name)
		selectsOnly(t, "the Deployment "+name, deployment.Spec.Selector.MatchLabels, name)
		for _, spread := range pod.TopologySpreadConstraints {
			selectsOnly(t, "the spread of "+name, spread.LabelSelector.MatchLabels, name)
		}
	}
}

// With a number of pods in the manifest, every upgrade would undo what the autoscaler did.
func TestAutoscalingLeavesTheNumberOfPodsAlone(t *testing.T) {
	all := objects(t, render(t, "apiserver: {autoscaling: {enabled: true}}").stream())
	if replicas := get[appsv1.Deployment](t, all, "Deployment/merchant-operator-apiserver").Spec.Replicas; replicas != nil {
		t.Errorf("the Deployment asks for %d pods", *replicas)
	}
}

// The kubelet kills what is left at the end of the grace period, and requests or deliveries with it.
func TestTheGracePeriodsOutlastTheDrain(t *testing.T) {
	grace := func(template corev1.PodTemplateSpec) time.Duration {
		return time.Duration(*template.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	for _, values := range []string{"", "apiserver: {preStopSeconds: 60, drainDelaySeconds: 120}", "apiserver: {preStopSeconds: 0, drainDelaySeconds: 0}"} {
		all := templates(t, values)
		api := all["merchant-operator-apiserver"]
		container := api.Spec.Containers[0]
		drain := apiserver.DefaultOptions().ShutdownTimeout
		if container.Lifecycle != nil {
			drain += time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
		for _, argument := range container.Args {
			if text, found := strings.CutPrefix(argument, "--drain-delay="); found {
				delay, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				drain += delay
			}
		}
		if grace(api) < drain+5*time.Second {
			t.Errorf("with %q the apiserver has %s to end and needs %s", values, grace(api), drain)
		}
		if got, need := grace(all["merchant-operator-dispatcher"]), dispatcher.DefaultOptions().ShutdownTimeout; got < need+5*time.Second {
			t.Errorf("the dispatcher has %s to end and needs %s", got, need)
		}
		if got, need := grace(all["merchant-operator"]), controllers.DefaultOptions().ShutdownTimeout; got < need+5*time.Second {
			t.Errorf("the operator has %s to end and needs %s", got, need)
		}
	}
}
