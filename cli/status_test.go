package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

func TestStatus_Merchant(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	merchant := n.Merchant("acme", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
		m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	})
	run(t, n.Namespace, "status acme").want(t, terminal.ExitNegative, "keys issue acme-1 --merchant acme -n "+n.Namespace)
	key, plaintext := n.ApiKey("till", "acme")
	n.Merchant("other")
	n.ApiKey("others-till", "other")
	eventuallyMe(t, n, plaintext, http.StatusOK)

	screen := run(t, n.Namespace, "status acme").want(t, terminal.ExitDone,
		n.Namespace+"/acme (Acme acme), mer_", "203.0.113.0/24", "https://shop.example/hooks, no event yet", "0 pending, 0 dead letters",
		key.Status.Prefix, "till-key", "nothing to do")
	if strings.Contains(screen.out, "others-till") {
		t.Errorf("a key of another merchant:\n%s", screen.out)
	}
	var s struct {
		MerchantID string `json:"merchantID"`
	}
	text := run(t, n.Namespace, "status acme -o json").want(t, terminal.ExitDone).out
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	// What the screen has, JSON has too; ages are times there.
	for _, word := range []string{"acme", "Acme acme", s.MerchantID, "203.0.113.0/24", "https://shop.example/hooks", "till", key.Status.Prefix, "Published", "till-key"} {
		if !strings.Contains(screen.out, word) || !strings.Contains(text, word) {
			t.Errorf("%q is not in both of\n%s\n%s", word, screen.out, text)
		}
	}
	if got := run(t, n.Namespace, "status acme -o name").want(t, terminal.ExitDone).out; got != "merchant.merchant-operator.io/acme\napikey.merchant-operator.io/till\n" {
		t.Errorf("-o name: %s", got)
	}
	if !strings.HasPrefix(run(t, n.Namespace, "status acme -o yaml").want(t, terminal.ExitDone).out, "allowlist:\n") {
		t.Error("-o yaml is no YAML")
	}

	n.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	n.Eventually("the status says so", func() bool {
		got := run(t, n.Namespace, "status acme")
		return got.code == terminal.ExitNegative && strings.Contains(got.out, "MerchantSuspended") && strings.Contains(got.out, "Every request gets 403")
	})
}

// It does not run beside other tests, whose merchants have problems.
func TestStatus_AllMerchants(t *testing.T) {
	n := newTenant(t)
	if got := run(t, n.Namespace, "status").want(t, terminal.ExitDone, "No merchants in namespace "+n.Namespace); got.out != "" {
		t.Errorf("stdout: %s", got.out)
	}
	n.Merchant("acme")
	n.ApiKey("till", "acme")
	table := strings.Split(run(t, n.Namespace, "status").want(t, terminal.ExitDone).out, "\n")
	if len(table) != 3 || !strings.HasPrefix(table[0], "NAME   STATE    READY       KEYS") || !strings.HasPrefix(table[1], "acme   Active   Published   1/1") {
		t.Errorf("the table is\n%s", strings.Join(table, "\n"))
	}
	run(t, n.Namespace, "status -A").want(t, terminal.ExitDone, "NAMESPACE", n.Namespace)
	run(t, n.Namespace, "status -A acme").want(t, terminal.ExitUsage, "a name is in one namespace")
	if got := run(t, n.Namespace, "status -o name").want(t, terminal.ExitDone).out; got != "merchant.merchant-operator.io/acme\n" {
		t.Errorf("-o name: %s", got)
	}
	var list struct {
		Items []struct {
			Keys []any `json:"keys"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(run(t, n.Namespace, "status -o json").want(t, terminal.ExitDone).out), &list); err != nil || len(list.Items) != 1 || len(list.Items[0].Keys) != 1 {
		t.Errorf("-o json: %+v, %v", list, err)
	}
}
