//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli"
)

// plugin runs kubectl merchant in the namespace of the shops.
func plugin(ctx context.Context, input string, args ...string) (out, problems string, code int) {
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: &stdout, ErrOut: &stderr}
	code = cli.Execute(ctx, "devel", streams, append(args, "--kubeconfig="+os.Getenv("KUBECONFIG"), "-n="+shops, "--system-namespace="+systemNamespace, "--credentials-namespace="+credentials))
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
	proved("a merchant onboarded, a 401 explained, and dead letters listed through a pod, with kubectl alone")
}
