//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servesWhenCutOff starts one more replica of the API that reaches the Kubernetes API only through a forwarder, and
// takes the forwarder away.
func servesWhenCutOff(ctx SpecContext) {
	key := shared.apply(ctx, "cut")
	forwarder := agentPod(systemNamespace, "forwarder", "forward", ":6443", "kubernetes.default.svc:443")
	Expect(shared.Create(ctx, forwarder)).To(Succeed())
	shared.waitForPod(ctx, forwarder)
	allowToRedis(ctx, "cut-off")
	replica := replicaThrough(ctx, forwarder.Status.PodIP)
	shared.waitForPod(ctx, replica)
	url := "http://" + replica.Status.PodIP + ":8080"
	Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK))

	Expect(shared.Delete(ctx, forwarder, client.GracePeriodSeconds(0))).To(Succeed())
	Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(forwarder), &corev1.Pod{}) }).
		WithContext(ctx).ShouldNot(Succeed(), "the forwarder is gone")

	Expect(till.charge(ctx, url, key, "while-cut-off").Status).To(Equal("PENDING"))
	// It has heard of no new key, which is how we know that it is cut off; a key that it knew and that was rotated
	// elsewhere it learns of from Redis, at once.
	stranger := shared.apply(ctx, "after-the-cut")
	Expect(till.read(ctx, url, stranger, "/api/v1/merchant/me").Status).To(Equal(http.StatusUnauthorized), "it is not cut off")
	fresh := rotate(ctx, publicURL, key)
	Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusUnauthorized), "it takes the old key")
	Expect(till.read(ctx, url, fresh, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK), "it refuses the new key")
	proved("cut off, it charged, refused a key that was rotated elsewhere, and took the new one")
}

// replicaThrough is a pod like those of the API, but for its way to the Kubernetes API.
func replicaThrough(ctx SpecContext, address string) *corev1.Pod {
	GinkgoHelper()
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "cut-off"},
		Data: map[string]string{"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters:
- name: it
  cluster:
    server: https://%s:6443
    tls-server-name: kubernetes.default.svc
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
users: [{name: it, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]
`, address)},
	}
	Expect(shared.Create(ctx, config)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(shared.Delete(ctx, config)).To(Succeed()) })

	var deployment appsv1.Deployment
	Expect(shared.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: release + "-apiserver"}, &deployment)).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "cut-off", Labels: map[string]string{"e2e": "cut-off"}},
		Spec:       *deployment.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.TopologySpreadConstraints = nil
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kubeconfig", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: config.Name}},
	}})
	container := &pod.Spec.Containers[0]
	container.Args = append(container.Args, "--kubeconfig=/etc/cut-off/kubeconfig")
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "kubeconfig", MountPath: "/etc/cut-off", ReadOnly: true})
	Expect(shared.Create(ctx, pod)).To(Succeed())
	return pod
}
