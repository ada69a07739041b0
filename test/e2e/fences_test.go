//go:build e2e

package e2e_test

import (
	"context"
	"net/http"
	"time"

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
	err := shared.Create(ctx, privileged, client.DryRunAll)
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a privileged pod: %v", err)

	running := 0
	for _, role := range roles() {
		for _, pod := range shared.rolePods(ctx, Default, role) {
			Expect(ready(pod)).To(BeTrue(), pod.Name)
			running++
		}
	}
	Expect(running).To(Equal(2 + 3 + 2 + 2))
	proved("%d pods run in a namespace that enforces it", running)
}

// isFencedIn tries what must not work. A cluster whose network enforces no policy, as many a small one, is found out by
// a policy that admits nobody.
func isFencedIn(ctx SpecContext) {
	if !enforcesPolicies(ctx) {
		proved("nothing: this cluster's network does not enforce NetworkPolicies")
		return
	}
	redis := "http://merchant-operator-redis." + systemNamespace + ".svc:6379"
	shop := "http://till." + shops + ".svc:8080/healthz"
	// Pods with the labels of a role, for the roles themselves have no shell to try things from.
	inOperator := shared.startAgentAs(ctx, "operator")
	inDispatcher := shared.startAgentAs(ctx, "dispatcher")
	inConsole := shared.startAgentAs(ctx, "console")
	for _, attempt := range []struct {
		what    string
		from    agent
		url     string
		reaches bool
	}{
		{"a till reaches the API", till, publicURL + "/openapi.yaml", true},
		{"a till reaches Redis", till, redis, false},
		{"a stranger reaches the API", unasked, publicURL + "/openapi.yaml", false},
		{"a stranger reaches the port for rails", unasked, internalURL + "/", false},
		{"a stranger reaches Redis", unasked, redis, false},
		{"a stranger reaches the console", unasked, consoleService + "/signed-out", false},
		{"a dispatcher reaches a shop", inDispatcher, shop, true},
		{"an operator reaches a shop", inOperator, shop, false},
		{"an operator reaches Redis", inOperator, redis, false},
		{"a dispatcher reaches the port for rails", inDispatcher, internalURL + "/", false},
		{"a console reaches a shop", inConsole, shop, false},
		{"a console reaches the public port of the API", inConsole, publicURL + "/openapi.yaml", false},
	} {
		request := exchange{Method: http.MethodGet, URL: attempt.url}
		if attempt.reaches {
			Eventually(func() string { return attempt.from.do(ctx, request).Error }).WithContext(ctx).Should(BeEmpty(), attempt.what)
			continue
		}
		// Refused by what enforces the policy, or in vain until a deadline; not that a name is unknown.
		Eventually(func() string { return attempt.from.do(ctx, request).Error }).WithContext(ctx).
			Should(Or(ContainSubstring("connection refused"), ContainSubstring("timeout")), attempt.what)
	}
	proved("strangers reach neither API, port for rails, console nor Redis; a till only the API; of the roles only the dispatcher reaches a shop")
}

// enforcesPolicies puts a policy that admits nobody in front of the stranger, and has the till look for a while.
func enforcesPolicies(ctx context.Context) bool {
	GinkgoHelper()
	target := exchange{Method: http.MethodGet, URL: "http://stranger." + strangers + ".svc:8080/healthz"}
	Eventually(func() int { return till.do(ctx, target).Status }).WithContext(ctx).Should(Equal(http.StatusOK))
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: strangers, Name: "nobody"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	Expect(shared.Create(ctx, policy)).To(Succeed())
	defer func() { Expect(shared.Delete(ctx, policy)).To(Succeed()) }()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for till.do(ctx, target).Error == "" {
		select {
		case <-deadline:
			return false
		case <-tick.C:
		}
	}
	return true
}

// startAgentAs starts an agent with the labels of a role's pods, which no Service routes to.
func (c *cluster) startAgentAs(ctx context.Context, role string) agent {
	GinkgoHelper()
	pod := agentPod(systemNamespace, "agent-as-"+role, "serve", ":8080")
	pod.Labels["app.kubernetes.io/name"] = "merchant-operator"
	pod.Labels["app.kubernetes.io/instance"] = release
	pod.Labels["app.kubernetes.io/component"] = role
	Expect(c.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { //nolint:contextcheck // Ginkgo gives a clean-up its own
		Expect(c.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func() error { return c.Get(ctx, client.ObjectKeyFromObject(pod), pod) }).WithContext(ctx).ShouldNot(Succeed())
	})
	c.waitForPod(ctx, pod)
	return agent{cluster: c, namespace: systemNamespace, name: pod.Name}
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
	Expect(shared.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { //nolint:contextcheck // Ginkgo gives a clean-up its own
		Expect(shared.Delete(ctx, policy)).To(Succeed())
		Expect(shared.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(systemNamespace), client.MatchingLabels{"e2e": name})).To(Succeed())
	})
}
