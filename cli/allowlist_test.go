package cli

import (
	"encoding/json"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

func TestAllowlistTest(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("open")
	n.Merchant("reporting", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist, m.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	run(t, n.Namespace, "allowlist test reporting 192.0.2.1").want(t, terminal.ExitNegative, "only because spec.ipAllowlistMode is Report")
	run(t, n.Namespace, "status").want(t, terminal.ExitDone, "203.0.113.0/24 (report only)")
	n.Merchant("fenced", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48", "198.51.100.7"}
	})
	for address, entry := range map[string]string{"203.0.113.7": "203.0.113.0/24", "::ffff:203.0.113.7": "203.0.113.0/24", "198.51.100.7": "198.51.100.7/32", "2001:db8::1": "2001:db8::/48"} {
		run(t, n.Namespace, "allowlist test fenced "+address).want(t, terminal.ExitDone, "is allowed by "+entry)
	}
	for _, address := range []string{"203.0.114.7", "2001:db9::1", "198.51.100.8"} {
		run(t, n.Namespace, "allowlist test fenced "+address).want(t, terminal.ExitNegative, address+" is not on the allowlist")
	}
	n.ApiKey("fenced-till", "fenced", func(k *v1alpha1.ApiKey) { k.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
	n.ApiKey("fenced-other", "fenced")
	run(t, n.Namespace, "allowlist test fenced 203.0.113.7 --key fenced-till").want(t, terminal.ExitDone, "is allowed by 203.0.113.0/24")
	run(t, n.Namespace, "allowlist test fenced 203.0.113.8 --key fenced-other").want(t, terminal.ExitDone, "is allowed by 203.0.113.0/24", "203.0.113.8 is not on the allowlist of ApiKey fenced-till")
	run(t, n.Namespace, "allowlist test fenced 203.0.113.8").want(t, terminal.ExitDone, "not on the allowlist of ApiKey fenced-till")
	run(t, n.Namespace, "allowlist test fenced 203.0.113.8 --key fenced-till").want(t, terminal.ExitNegative, "not on the allowlist of ApiKey fenced-till")
	run(t, n.Namespace, "allowlist test open 192.0.2.1 --key fenced-till").want(t, terminal.ExitUsage, "open has no ApiKey fenced-till")
	run(t, n.Namespace, "allowlist test open 192.0.2.1").want(t, terminal.ExitDone, "allowlist is empty")
	var found struct {
		Allowed bool     `json:"allowed"`
		Entries []string `json:"entries"`
	}
	if err := json.Unmarshal([]byte(run(t, n.Namespace, "allowlist test fenced 203.0.113.7 -o json").want(t, terminal.ExitDone).out), &found); err != nil || !found.Allowed || len(found.Entries) != 1 {
		t.Errorf("-o json: %+v, %v", found, err)
	}
	run(t, n.Namespace, "allowlist test fenced shop.example").want(t, terminal.ExitUsage, `ADDRESS must be an IP address, not "shop.example"`)
	run(t, n.Namespace, "allowlist test fenced").want(t, terminal.ExitUsage, "ADDRESS is missing")
	run(t, n.Namespace, "allowlist check").want(t, terminal.ExitUsage, `unknown command "check"`, "Use one of: test")
}
