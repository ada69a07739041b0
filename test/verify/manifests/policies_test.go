package manifests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// policed are manifests, and what a policy of docs/examples/policies.yaml says against them; empty: nothing.
var policed = map[string]struct{ kind, metadata, spec, refused string }{
	"a Merchant without an allowlist":    {"Merchant", "", "displayName: Shop", "spec.ipAllowlist: a live Merchant needs the addresses"},
	"an empty allowlist":                 {"Merchant", "", "displayName: Shop, ipAllowlist: []", "spec.ipAllowlist: a live Merchant needs the addresses"},
	"an allowlist":                       {"Merchant", "", "displayName: Shop, ipAllowlist: [203.0.113.7]", ""},
	"an allowlist that reports":          {"Merchant", "", "displayName: Shop, ipAllowlist: [203.0.113.7], ipAllowlistMode: Report", ""},
	"a suspended Merchant":               {"Merchant", "", "displayName: Shop, state: Suspended", ""},
	"a Merchant for tests":               {"Merchant", "labels: {example.com/merchant: test}", "displayName: Shop", ""},
	"a Merchant with another label":      {"Merchant", "labels: {team: shops}", "displayName: Shop", "spec.ipAllowlist"},
	"a key without a schedule":           {"ApiKey", "", "merchantRef: {name: shop}", "spec.rotation.everySeconds: a live key has to be replaced"},
	"a key with a trigger only":          {"ApiKey", "", "merchantRef: {name: shop}, rotation: {trigger: a}", "spec.rotation.everySeconds"},
	"a schedule of 91 days":              {"ApiKey", "", "merchantRef: {name: shop}, rotation: {everySeconds: 7862400}", "spec.rotation.everySeconds"},
	"a schedule of 90 days":              {"ApiKey", "", "merchantRef: {name: shop}, rotation: {everySeconds: 7776000}", ""},
	"a test key":                         {"ApiKey", "", "merchantRef: {name: shop}, mode: Test", ""},
	"a disabled key":                     {"ApiKey", "", "merchantRef: {name: shop}, state: Disabled", ""},
	"a key from a vault":                 {"ApiKey", "", "merchantRef: {name: shop}, keyDigest: " + strings.Repeat("0f", 32), "spec.expiresAt: a live key without a schedule needs an end"},
	"a key from a vault, with an end":    {"ApiKey", "", "merchantRef: {name: shop}, expiresAt: '2099-01-01T00:00:00Z', keyDigest: " + strings.Repeat("0f", 32), ""},
	"a key without a Secret":             {"ApiKey", "", "merchantRef: {name: shop}, delivery: {policy: None}", "spec.expiresAt: a live key without a schedule needs an end"},
	"a key without a Secret, and an end": {"ApiKey", "", "merchantRef: {name: shop}, delivery: {policy: None}, expiresAt: '2099-01-01T00:00:00Z'", ""},
}

func TestPolicies_Examples(t *testing.T) {
	install(t, "crd")
	const namespace = "policed"
	kubectl(t, "", "create", "namespace", namespace)
	manifest := func(kind, name, metadata, spec string) string {
		return fmt.Sprintf("apiVersion: merchant-operator.io/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: %s, %s}\nspec: {%s}\n", kind, name, namespace, metadata, spec)
	}
	// What is there before the policies.
	kubectl(t, manifest("Merchant", "old", "finalizers: [example.com/kept]", "displayName: Shop"), "apply", "-f", "-")
	kubectl(t, manifest("ApiKey", "old", "finalizers: [example.com/kept]", "merchantRef: {name: old}"), "apply", "-f", "-")
	file := repository.Path("docs", "examples", "policies.yaml")
	kubectl(t, "", "apply", "-f", file)
	probes := map[string]string{"Merchant": "displayName: Shop", "ApiKey": "merchantRef: {name: shop}"}
	awaitPolicies := func(inForce bool) {
		for kind, spec := range probes {
			await.Seeing(t, time.Minute, fmt.Sprintf("the policy of %s is in force: %t", kind, inForce), func() (string, bool) {
				_, err := cluster.Kubectl(manifest(kind, "probe", "", spec), "create", "--dry-run=server", "-f", "-")
				return fmt.Sprint(err), inForce == (err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"))
			})
		}
	}
	t.Cleanup(func() {
		kubectl(t, "", "delete", "-f", file)
		awaitPolicies(false) // the tests that follow create such objects
	})
	awaitPolicies(true)
	for name, test := range policed {
		t.Run(name, func(t *testing.T) {
			_, err := cluster.Kubectl(manifest(test.kind, "shop", test.metadata, test.spec), "create", "--dry-run=server", "-f", "-")
			if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%v, want %q", err, test.refused)
			}
		})
	}
	// What a controller or an incident needs is not refused.
	for _, kind := range []string{"merchant", "apikey"} {
		kubectl(t, "", "annotate", kind, "old", "-n", namespace, "example.com/note=a")
		kubectl(t, "", "patch", kind, "old", "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	}
	kubectl(t, "", "patch", "apikey", "old", "-n", namespace, "--type=merge", "-p", `{"spec":{"state":"Disabled"}}`)
	kubectl(t, "", "patch", "merchant", "old", "-n", namespace, "--type=merge", "-p", `{"spec":{"state":"Suspended"}}`)
	if _, err := cluster.Kubectl("", "patch", "apikey", "old", "-n", namespace, "--type=merge", "-p", `{"spec":{"state":"Active"}}`); err == nil || !strings.Contains(err.Error(), "spec.rotation.everySeconds") {
		t.Errorf("enabled without a schedule: %v", err)
	}
	kubectl(t, "", "delete", "merchants,apikeys", "--all", "-n", namespace)
}

// Without controllers a deleted namespace stays in Terminating, which is what matters here.
func TestPolicies_DeleteOnlyClosedMerchants(t *testing.T) {
	const patience = time.Minute
	install(t, "crd")
	apply(t, "deletion-policy")
	t.Cleanup(func() { kubectl(t, "", "delete", "-k", repository.Path("config", "deletion-policy")) })
	for _, namespace := range []string{"guarded", "leaving"} {
		kubectl(t, "", "create", "namespace", namespace)
		for _, name := range []string{"kept", "closed"} {
			kubectl(t, `
apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata: {name: `+name+`, finalizers: [merchant-operator.io/test]}
spec: {displayName: Shop}
`, "apply", "-n", namespace, "-f", "-")
		}
	}

	const want = `Merchant kept is Active. Deleting it ends its API keys permanently. To delete it, first set spec.state to Closed, in Git if it comes from there: ` +
		`kubectl patch merchant kept -n guarded --type=merge -p '{"spec":{"state":"Closed"}}'`
	await.Seeing(t, patience, "an active Merchant cannot be deleted", func() (string, bool) {
		_, err := cluster.Kubectl("", "delete", "merchant", "kept", "-n", "guarded", "--dry-run=server")
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), want)
	})
	if printed, err := cluster.Kubectl("", "delete", "merchants", "--all", "-n", "guarded"); err == nil {
		t.Errorf("all active Merchants were deleted at once:\n%s", printed)
	}

	kubectl(t, "", "patch", "merchant", "closed", "-n", "guarded", "--type=merge", "-p", `{"spec":{"state":"Closed"}}`)
	kubectl(t, "", "delete", "merchant", "closed", "-n", "guarded", "--wait=false")
	assertGoneWithItsFinalizer(t, "guarded", "closed")

	kubectl(t, "", "delete", "namespace", "leaving", "--wait=false")
	await.Seeing(t, patience, "Merchants of a namespace that is deleted can be deleted", func() (string, bool) {
		_, err := cluster.Kubectl("", "delete", "merchants", "--all", "-n", "leaving", "--wait=false")
		return fmt.Sprint(err), err == nil
	})
	assertGoneWithItsFinalizer(t, "leaving", "kept")
}

// assertGoneWithItsFinalizer does what the operator does at the end of its work.
func assertGoneWithItsFinalizer(t *testing.T, namespace, name string) {
	t.Helper()
	kubectl(t, "", "patch", "merchant", name, "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	if printed := kubectl(t, "", "get", "merchant", name, "-n", namespace, "--ignore-not-found"); printed != "" {
		t.Errorf("Merchant %s/%s is still there:\n%s", namespace, name, printed)
	}
}
