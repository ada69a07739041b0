//go:build e2e

package e2e_test

import (
	"context"
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
			victim := shared.podsOf(ctx, Default, release+"-apiserver")[0]
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
	g.Expect(shared.List(ctx, &leases, client.InNamespace(systemNamespace))).To(Succeed())
	g.Expect(leases.Items).To(HaveLen(1))
	g.Expect(leases.Items[0].Spec.HolderIdentity).NotTo(BeNil())
	name, _, _ := strings.Cut(*leases.Items[0].Spec.HolderIdentity, "_")
	g.Expect(name).NotTo(BeEmpty())
	return name
}
