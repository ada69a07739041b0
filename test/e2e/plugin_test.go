//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// pluginUser has the roles of docs/kubectl-merchant.md, each where the page says, and nothing else.
const pluginUser = "somebody-with-kubectl"

// grantPluginRoles creates the roles of the page, and binds them.
func grantPluginRoles(ctx context.Context) {
	GinkgoHelper()
	for _, role := range repository.PluginRoles(GinkgoTB()) {
		Expect(shared.Create(ctx, &role)).To(Succeed())
	}
	for namespace, roles := range map[string][]string{
		shops:           {"merchant-manager", "merchant-key-reader", "merchant-support"},
		credentials:     {"merchant-on-call"},
		systemNamespace: {"merchant-webhooks", "merchant-support"},
	} {
		for _, role := range roles {
			Expect(shared.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: pluginUser}},
			})).To(Succeed())
		}
	}
}

// plugin runs kubectl merchant in the namespace of the shops.
func plugin(ctx context.Context, input string, args ...string) (out, problems string, code int) {
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: &stdout, ErrOut: &stderr}
	code = cli.Execute(ctx, "devel", streams, append(args, "--kubeconfig="+os.Getenv("KUBECONFIG"), "--as="+pluginUser, "-n="+shops, "--system-namespace="+systemNamespace, "--credentials-namespace="+credentials))
	return stdout.String(), stderr.String(), code
}

// usesThePlugin is what a person at a desk does: what is behind the Services is reached through the Kubernetes API only.
func usesThePlugin(ctx SpecContext) {
	run := func(code int, input string, args ...string) string {
		GinkgoHelper()
		out, problems, got := plugin(ctx, input, args...)
		Expect(got).To(Equal(code), "kubectl merchant %s\n%s%s", args[0], out, problems)
		return out + problems
	}
	for _, command := range []string{"status", "onboard plugin --display-name Plugin", "keys issue x --merchant x", "webhooks dead-letters", "allowlist test plugin 192.0.2.1"} {
		Expect(run(1, "", strings.Fields(command)...)).To(ContainSubstring("Add this rule"), "without rights")
	}
	grantPluginRoles(ctx)
	run(0, "", "onboard", "plugin", "--display-name", "Plugin", "--allow", "0.0.0.0/0", "--timeout", "2m")
	key, _, code := plugin(ctx, "", "keys", "reveal", "plugin-1")
	Expect(code).To(Equal(0))
	shared.waitForKey(ctx, strings.TrimSpace(key))
	Expect(run(0, "", "status", "plugin")).To(ContainSubstring("plugin-1"))
	Expect(run(0, key, "explain-401", "--key-stdin", "--from", "10.1.2.3")).To(ContainSubstring("ACCEPTED"))
	Expect(run(3, key, "explain-401", "--key-stdin", "--from", "2001:db8::1")).To(ContainSubstring("REFUSED (address_not_allowed)"))

	// These run in a pod of the dispatcher, the only way to Redis.
	Expect(run(0, "", "webhooks", "dead-letters", "--merchant", "plugin")).To(ContainSubstring("No dead letters."))
	Expect(run(0, "", "webhooks", "resend", "--merchant", "plugin")).To(ContainSubstring("dead letters queued for delivery: 0"))
	Expect(run(1, "", "webhooks", "resend", "evt_00nobody_ended")).To(ContainSubstring("are not dead letters"))
	Expect(run(0, "", "version")).To(ContainSubstring("dispatcher"))
	report := run(0, "", "report")
	Expect(report).To(ContainSubstring("name: plugin"))
	Expect(report).NotTo(ContainSubstring(strings.TrimSpace(key)))
	proved("a merchant onboarded, a 401 explained, and dead letters listed through a pod, with kubectl and the documented rights alone")
}
