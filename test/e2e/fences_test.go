//go:build e2e

package e2e_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// runsRestricted: the namespaces enforce the standard, and the pods of the release are there.
func runsRestricted(ctx SpecContext) {
	privileged := agentPod(systemNamespace, "privileged", "serve", ":8080")
	privileged.Spec.Containers[0].SecurityContext.Privileged = new(true)
	privileged.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	err := world.Create(ctx, privileged, client.DryRunAll)
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a privileged pod: %v", err)

	running := 0
	for _, role := range roles() {
		for _, pod := range world.podsOf(ctx, Default, role) {
			Expect(ready(pod)).To(BeTrue(), pod.Name)
			running++
		}
	}
	Expect(running).To(Equal(2 + 3 + 2))
	proved("%d pods run in a namespace that enforces it", running)
}

// isFencedIn tries what must not work from a namespace that is on no list. A cluster whose network does not enforce
// policies, as kind's older ones, is found out by one that denies everything.
func isFencedIn(ctx SpecContext) {
	if !enforcesPolicies(ctx) {
		proved("nothing: this cluster's network does not enforce NetworkPolicies")
		return
	}
	Expect(till.read(ctx, publicURL, "", "/openapi.yaml").Status).To(Equal(http.StatusOK), "the till does not reach the API")
	redis := "http://merchant-operator-redis." + systemNamespace + ".svc:6379"
	for what, attempt := range map[string]struct {
		from agent
		url  string
	}{
		"a stranger, the API":       {unasked, publicURL + "/openapi.yaml"},
		"a stranger, its rail port": {unasked, internalURL + "/"},
		"a stranger, Redis":         {unasked, redis},
		"a till, Redis":             {till, redis},
	} {
		got := attempt.from.do(ctx, exchange{Method: http.MethodGet, URL: attempt.url})
		Expect(got.Error).To(ContainSubstring("deadline exceeded"), "%s reaches %s: %+v", what, attempt.url, got)
	}
	proved("NetworkPolicies are enforced here: strangers reach neither API, rail port nor Redis, a till only the API")
}

// enforcesPolicies puts a policy that admits nobody in front of the stranger, and has the till look.
func enforcesPolicies(ctx context.Context) bool {
	GinkgoHelper()
	target := exchange{Method: http.MethodGet, URL: "http://stranger." + strangers + ".svc:8080/healthz"}
	Expect(till.do(ctx, target).Status).To(Equal(http.StatusOK))
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: strangers, Name: "nobody"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	Expect(world.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, policy)).To(Succeed()) })
	for range 5 { // each attempt takes seconds when it is in vain, and a policy takes some to work
		if till.do(ctx, target).Error != "" {
			return true
		}
	}
	return false
}

// allowToRedis lets pods with a label reach Redis, besides those the chart lets in.
func allowToRedis(ctx context.Context, name string) {
	GinkgoHelper()
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "merchant-operator-redis"}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"e2e": name}}}},
			}},
		},
	}
	Expect(world.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(world.Delete(ctx, policy)).To(Succeed())
		Expect(world.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(systemNamespace), client.MatchingLabels{"e2e": name})).To(Succeed())
	})
}
