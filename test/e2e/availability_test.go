//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const chargesPerSecond = 60

// underLoad keeps up a steady load through the Service while something happens, and wants no request to fail.
func underLoad(ctx SpecContext, key string, what func()) {
	GinkgoHelper()
	till.startLoad(ctx, publicURL, key, chargesPerSecond)
	DeferCleanup(func(ctx SpecContext) { till.stopLoad(ctx) })
	hundredMore(ctx)
	what()
	hundredMore(ctx)
	report := till.stopLoad(ctx)
	Expect(report.Failures).To(BeEmpty(), "%d of %d requests failed", report.Failed, report.Requests)
	Expect(report.Failed).To(BeZero())
	proved("%d requests, 0 failed, the slowest took %d ms", report.Requests, report.SlowestMillis)
}

func hundredMore(ctx SpecContext) {
	GinkgoHelper()
	before := till.loadSoFar(ctx).Requests
	Eventually(func() int { return till.loadSoFar(ctx).Requests }).WithContext(ctx).Should(BeNumerically(">=", before+100))
}

func survivesPodDeletion(ctx SpecContext) {
	key := shared.apply(ctx, "deletion")
	underLoad(ctx, key, func() {
		for range 2 {
			victim := shared.rolePods(ctx, Default, release+"-apiserver")[0]
			Expect(shared.Delete(ctx, &victim)).To(Succeed())
			Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(&victim), &corev1.Pod{}) }).
				WithContext(ctx).ShouldNot(Succeed())
			shared.waitForRollouts(ctx)
		}
	})
}

func survivesARollingRestart(ctx SpecContext) {
	key := shared.apply(ctx, "restart")
	underLoad(ctx, key, func() {
		for _, role := range roles() {
			var deployment appsv1.Deployment
			Expect(shared.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: role}, &deployment)).To(Succeed())
			before := deployment.DeepCopy()
			if deployment.Spec.Template.Annotations == nil {
				deployment.Spec.Template.Annotations = map[string]string{}
			}
			// As kubectl rollout restart does.
			deployment.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
			Expect(shared.Patch(ctx, &deployment, client.MergeFrom(before))).To(Succeed())
		}
		shared.waitForRollouts(ctx)
	})
}

func survivesAnUpgrade(ctx SpecContext) {
	key := shared.apply(ctx, "upgrade")
	made := till.charge(ctx, publicURL, key, "before-the-upgrade")
	underLoad(ctx, key, func() {
		shared.install(ctx, "--set", "logLevel=DEBUG") // which is in every pod's arguments
		shared.waitForRollouts(ctx)
	})
	Expect(till.read(ctx, publicURL, key, "/api/v1/sessions/"+made.SessionID).Status).To(Equal(http.StatusOK))
	Expect(till.charge(ctx, publicURL, key, "before-the-upgrade").SessionID).To(Equal(made.SessionID))
}

// changesLeaders deletes the leading operator's pod.
func changesLeaders(ctx SpecContext) {
	before := leader(ctx, Default)
	victim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: before}}
	begin := time.Now()
	Expect(shared.Delete(ctx, victim, client.GracePeriodSeconds(0))).To(Succeed())
	Eventually(func(g Gomega) { g.Expect(leader(ctx, g)).NotTo(Equal(before)) }).WithContext(ctx).Should(Succeed())
	shared.apply(ctx, "failover")
	proved("another operator led, and a new key worked, %.0f s after the leader's pod was deleted", time.Since(begin).Seconds())
	shared.waitForRollouts(ctx)
}

// leader is the pod that holds the operators' lease.
func leader(ctx context.Context, g Gomega) string {
	var leases coordinationv1.LeaseList
	g.Expect(shared.List(ctx, &leases, client.InNamespace(credentials))).To(Succeed())
	g.Expect(leases.Items).To(HaveLen(1))
	g.Expect(leases.Items[0].Spec.HolderIdentity).NotTo(BeNil())
	name, _, _ := strings.Cut(*leases.Items[0].Spec.HolderIdentity, "_")
	g.Expect(name).NotTo(BeEmpty())
	return name
}

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
