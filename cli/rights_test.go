package cli

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// documented are the rules of the roles of docs/kubectl-merchant.md.
func documented(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	for _, role := range repository.PluginRoles(t) {
		roles[role.Name] = role.Rules
	}
	return roles
}

// Where a role of the page is bound.
const (
	ofMerchants   = "merchants"
	ofCredentials = "credentials"
	ofSystem      = "system"
)

// rights are the roles that each command needs, and what it prints when it has them.
var rights = []struct {
	command, input string
	roles          map[string][]string // by where
	code           int
	prints         string
}{
	{command: "status", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "acme"},
	{command: "status acme", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "nothing to do"},
	{command: "onboard blue --display-name Blue", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "blue-1 created"},
	{command: "onboard red --display-name Red --reveal", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, prints: "mk_live_"},
	{command: "onboard green --display-name Green --dry-run=server", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "server dry run"},
	{command: "keys issue kiosk --merchant acme", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "created"},
	{command: "keys rotate till", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "rotated"},
	{command: "keys disable till", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "disabled"},
	{command: "keys enable till", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "enabled"},
	{command: "keys reveal till", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, prints: "mk_live_"},
	{command: "explain-401 --key-stdin --from 203.0.113.7", input: "till", roles: map[string][]string{ofCredentials: {"merchant-on-call"}}, prints: "ACCEPTED"},
	{command: "explain-401 --key-stdin --from 203.0.113.7", input: strings.Repeat("n", 40), roles: map[string][]string{ofCredentials: {"merchant-on-call"}}, code: terminal.ExitNegative, prints: "REFUSED (unknown)"},
	{command: "allowlist test acme 203.0.113.7", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "is allowed"},
	{command: "plan -f -", input: "kind: Merchant\napiVersion: merchant-operator.io/v1alpha1\nmetadata: {name: acme}\nspec: {displayName: Acme acme, rateLimit: {requestsPerSecond: 10000, burst: 100000}}", roles: map[string][]string{ofMerchants: {"merchant-planner"}}, prints: "1 unchanged"},
	{command: "webhooks status", roles: map[string][]string{ofMerchants: {"merchant-manager"}}, prints: "No webhooks"},
	// A pod of this test has no kubelet.
	{command: "webhooks dead-letters", roles: map[string][]string{ofSystem: {"merchant-webhooks"}}, code: terminal.ExitError, prints: "exec into pod"},
	{command: "webhooks resend --all", roles: map[string][]string{ofSystem: {"merchant-webhooks"}}, code: terminal.ExitError, prints: "exec into pod"},
	{command: "payments list acme", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, prints: "No payments on"},
	{command: "payments export acme --day yesterday", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, prints: "sessionId,status"},
	{command: "payments show SESSION_ID -o json", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, prints: `"status": "PENDING"`},
	{command: "payments refund SESSION_ID", roles: map[string][]string{ofMerchants: {"merchant-manager", "merchant-key-reader"}}, code: terminal.ExitError, prints: "no payment has completed the session"},
	{command: "version", roles: map[string][]string{ofSystem: {"merchant-support"}}, prints: "v1.2.3"},
}

// missing finds the rule that a command asks for.
var missing = regexp.MustCompile(`(?s)may not \S+ \S+ in namespace (\S+)\nAdd this rule to [^\n]*:\n(- .*)`)

// A person without rights follows what a command prints until it works. It never asks for more than the page says.
func TestRights(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	_, till := n.ApiKey("till", "acme", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = v1alpha1.Permissions() })
	eventuallyMe(t, n, till, 200)
	created, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Sessions, till, `{"amountCents":1250}`)
	if err != nil {
		t.Fatal(err)
	}
	system := kubetest.Namespace(t, installation.Environment.Config, "system-")
	dispatcherPodIn(t, system)
	where := map[string]string{n.Namespace: ofMerchants, kubetest.CredentialsNamespace: ofCredentials, system: ofSystem}
	roles := documented(t)
	for i, test := range rights {
		t.Run(test.command, func(t *testing.T) {
			if strings.HasPrefix(test.command, "explain-401") && test.input == "till" {
				till = strings.TrimSpace(run(t, n.Namespace, "keys reveal till").want(t, terminal.ExitDone).out)
				test.input = till
			}
			name := fmt.Sprintf("%s-%d", n.Namespace, i)
			kubeconfig := user(t, name)
			command := append(strings.Fields(strings.ReplaceAll(test.command, "SESSION_ID", created.Text("sessionId"))), "--system-namespace="+system)
			granted := map[string]bool{}
			var got result
			fixture.Tenant{T: t}.Eventually("the command has its rights", func() bool {
				got = runAs(t, kubeconfig, n.Namespace, test.input, command...)
				asked := missing.FindStringSubmatch(got.problems)
				if asked == nil {
					return true
				}
				if got.code != terminal.ExitError {
					t.Fatalf("exit code %d without a right", got.code)
				}
				var rules []rbacv1.PolicyRule
				if err := yaml.UnmarshalStrict([]byte(asked[2]), &rules); err != nil || len(rules) != 1 {
					t.Fatalf("%v: %s", err, asked[2])
				}
				if !covered(rules[0], test.roles[where[asked[1]]], roles) {
					t.Fatalf("it asks for a right in %s that the page does not give it:\n%s", where[asked[1]], asked[2])
				}
				if !granted[asked[0]] {
					granted[asked[0]] = true
					grant(t, name, asked[1], rules[0])
				}
				return false
			})
			got.want(t, test.code, test.prints)
			if len(granted) == 0 {
				t.Error("it needs no right at all")
			}
		})
	}
}

// covered reports whether one of the roles has the right.
func covered(rule rbacv1.PolicyRule, names []string, roles map[string][]rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(roles[name], func(has rbacv1.PolicyRule) bool {
			return slices.Contains(has.APIGroups, rule.APIGroups[0]) && slices.Contains(has.Resources, rule.Resources[0]) && slices.Contains(has.Verbs, rule.Verbs[0])
		})
	})
}

func dispatcherPodIn(t *testing.T, namespace string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dispatcher", Labels: map[string]string{cluster.ProductLabel: cluster.Product, cluster.RoleLabel: "dispatcher"}},
		Spec:       corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "dispatcher", Image: "merchant-operator"}}},
	}
	if err := installation.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if err := installation.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read is left out of a report, which says so.
func TestReport_NoRights(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	n.ApiKey("till", "acme")
	name := n.Namespace + "-reporter"
	kubeconfig := user(t, name)
	runAs(t, kubeconfig, n.Namespace, "", "report").want(t, terminal.ExitDone, "left out: error: "+name+" may not list merchants in namespace "+n.Namespace, "may not list deployments in namespace merchant-operator-system")
	roles := documented(t)
	grant(t, name, n.Namespace, slices.Concat(roles["merchant-manager"], roles["merchant-support"])...)
	grant(t, name, kubetest.SystemNamespace, roles["merchant-support"]...)
	n.Eventually("nothing is left out", func() bool {
		got := runAs(t, kubeconfig, n.Namespace, "", "report")
		return got.code == terminal.ExitDone && !strings.Contains(got.problems, "left out") && strings.Contains(got.out, "name: acme")
	})
	runAs(t, user(t, n.Namespace+"-nobody"), n.Namespace, "", "status", "-A").want(t, terminal.ExitError, "may not list merchants in all namespaces", "Add this rule to a ClusterRole")
}
