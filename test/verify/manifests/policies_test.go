package manifests

import (
	"fmt"
	"slices"
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
	kubectl(t, "", "patch", "apikey", "old", "-n", namespace, "--type=merge", "-p", `{"spec":{"rotation":{"trigger":"leaked"}}}`)
	kubectl(t, "", "patch", "merchant", "old", "-n", namespace, "--type=merge", "-p", `{"spec":{"webhook":{"url":"https://shop.example","rotationTrigger":"leaked"}}}`)
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

// The writes of Secrets in one namespace that the policy has to judge. The owner is the ApiKey till, unless the manifest says another.
const (
	ownedByKey     = "ownerReferences: [{apiVersion: merchant-operator.io/v1alpha1, kind: ApiKey, name: till, uid: 1e5b8a2c-0000-4000-8000-000000000001, controller: true}]"
	delivered      = "labels: {merchant-operator.io/delivered: key}, " + ownedByKey
	deliveredData  = "stringData: {apiKey: a, keyID: b, prefix: c}"
	foreignSecret  = "the operator changes and deletes only Secrets whose controller is a Merchant or an ApiKey"
	notDelivered   = "the operator writes only Opaque Secrets with its label"
	notPublished   = "in the credentials namespace the operator writes only Secrets of its own types"
	accountSecret  = "type: kubernetes.io/service-account-token"
	accountMeta    = "annotations: {kubernetes.io/service-account.name: default}"
	operatorSecret = "merchant-operator-operator-secrets"
)

// secretWrites are writes of Secrets by the operator's account, whose Role here allows it everything: only the policy may refuse.
var secretWrites = map[string]struct {
	namespace string // empty: the tenant's
	stored    string // metadata, and other fields, of the Secret that exists before; empty: none
	verb      string // create, apply (server-side), replace, patch, delete or deletecollection
	written   string // the same of the Secret that is written; for a patch the patch
	refused   string // why; empty: it is allowed
}{
	"a token of a service account":                      {"", "", "create", accountMeta + "}\n" + accountSecret + "\n", notDelivered},
	"a token of a service account in kube-system":       {"kube-system", "", "create", accountMeta + "}\n" + accountSecret + "\n", notDelivered},
	"a token of a service account, dressed as delivery": {"", "", "create", delivered + ", " + accountMeta + "}\n" + accountSecret + "\n", notDelivered},
	"a token of a service account by apply":             {"", "", "apply", delivered + ", " + accountMeta + "}\n" + accountSecret + "\n", notDelivered},
	"a bootstrap token in kube-system":                  {"kube-system", "", "create", delivered + "}\ntype: bootstrap.kubernetes.io/token\n", notDelivered},
	"a token of a service account among the published":  {credentials, "", "create", accountMeta + "}\n" + accountSecret + "\n", notPublished},
	"a Secret without our label":                        {"", "", "create", ownedByKey + "}\n" + deliveredData + "\n", notDelivered},
	"a Secret without an owner":                         {"", "", "create", "labels: {merchant-operator.io/delivered: key}}\n" + deliveredData + "\n", notDelivered},
	"a Secret of another kind of owner":                 {"", "", "create", strings.Replace(delivered, "kind: ApiKey", "kind: Other", 1) + "}\n" + deliveredData + "\n", notDelivered},
	"a Secret of a kind of another group":               {"", "", "create", strings.Replace(delivered, "merchant-operator.io/v1alpha1", "merchant-operator.io.example/v1alpha1", 1) + "}\n" + deliveredData + "\n", notDelivered},
	"a Secret whose owner does not control it":          {"", "", "create", strings.Replace(delivered, "controller: true", "controller: false", 1) + "}\n" + deliveredData + "\n", notDelivered},
	"a Secret with data that other controllers read":    {"", "", "create", delivered + "}\nstringData: {server: https://elsewhere.example, config: x}\n", notDelivered},
	"a foreign Secret replaced":                         {"", "}\nstringData: {password: a}\n", "replace", "}\nstringData: {password: b}\n", foreignSecret},
	"a foreign Secret made ours":                        {"", "}\nstringData: {apiKey: a}\n", "replace", delivered + "}\n" + deliveredData + "\n", foreignSecret},
	"a foreign Secret patched":                          {"", "}\nstringData: {password: a}\n", "patch", `{"stringData":{"password":"b"}}`, foreignSecret},
	"a foreign Secret applied":                          {"", "}\nstringData: {apiKey: a}\n", "apply", delivered + "}\n" + deliveredData + "\n", foreignSecret},
	"a foreign Secret deleted":                          {"", "}\nstringData: {password: a}\n", "delete", "", foreignSecret},
	"all Secrets deleted, one of them foreign":          {"", "}\nstringData: {password: a}\n", "deletecollection", "", foreignSecret},
	"a Secret that only looks like a delivered one":     {"", "labels: {merchant-operator.io/delivered: key}}\n" + deliveredData + "\n", "delete", "", foreignSecret},
	"a delivered Secret that loses its label":           {"", delivered + "}\n" + deliveredData + "\n", "patch", `{"metadata":{"labels":null}}`, notDelivered},
	"a delivered Secret that gets other data":           {"", delivered + "}\n" + deliveredData + "\n", "patch", `{"stringData":{"server":"x"}}`, notDelivered},

	"a key delivered": {"", "", "create", delivered + "}\n" + deliveredData + "\n", ""},
	"a key delivered to one with foreign labels":  {"", delivered + "}\n" + deliveredData + "\n", "patch", `{"metadata":{"labels":{"team":"shops"}},"stringData":{"apiKey":"b"}}`, ""},
	"a signing secret delivered":                  {"", "", "create", strings.NewReplacer("delivered: key", "delivered: webhook", "kind: ApiKey", "kind: Merchant").Replace(delivered) + "}\nstringData: {secret: a}\n", ""},
	"a delivered Secret replaced":                 {"", delivered + "}\n" + deliveredData + "\n", "replace", delivered + "}\nstringData: {apiKey: new}\n", ""},
	"a delivered Secret whose label is gone":      {"", ownedByKey + "}\n" + deliveredData + "\n", "replace", delivered + "}\n" + deliveredData + "\n", ""},
	"a delivered Secret deleted":                  {"", delivered + "}\n" + deliveredData + "\n", "delete", "", ""},
	"a delivered Secret deleted, of another type": {"", ownedByKey + "}\ntype: example.com/mine\n", "delete", "", ""},
	"a key published":                             {credentials, "", "create", "labels: {merchant-operator.io/published: key}}\ntype: merchant-operator.io/api-key\n", ""},
	"a published key replaced":                    {credentials, "}\ntype: merchant-operator.io/api-key\n", "replace", "}\ntype: merchant-operator.io/api-key\nstringData: {record.json: a}\n", ""},
	"what somebody put among the published":       {credentials, "}\nstringData: {a: b}\n", "delete", "", ""},
}

// The account gets every right on Secrets for this test, so that nothing but the policy refuses.
func TestPolicies_OperatorSecrets(t *testing.T) {
	install(t, "rbac")
	const namespace = "secrets"
	kubectl(t, "", "create", "namespace", namespace)
	kubectl(t, "", "create", "clusterrole", "all-secrets", "--verb=*", "--resource=secrets")
	kubectl(t, "", "create", "clusterrolebinding", "all-secrets", "--clusterrole=all-secrets", "--serviceaccount="+system+":merchant-operator")
	t.Cleanup(func() { kubectl(t, "", "delete", "clusterrole,clusterrolebinding", "all-secrets") })
	operator := []string{"--as=system:serviceaccount:" + system + ":merchant-operator"}
	manifest := func(namespace, name, rest string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: " + namespace + ", " + rest
	}
	await.Seeing(t, time.Minute, "the policy is in force", func() (string, bool) {
		_, err := cluster.Kubectl(manifest(namespace, "probe", "}\n"), append(operator, "create", "--dry-run=server", "-f", "-")...)
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), operatorSecret)
	})

	for name, test := range secretWrites {
		t.Run(name, func(t *testing.T) {
			place := test.namespace
			if place == "" {
				place = namespace
			}
			const object = "written"
			if test.stored != "" {
				kubectl(t, manifest(place, object, test.stored), "create", "-f", "-")
			}
			t.Cleanup(func() { kubectl(t, "", "delete", "secret", object, "-n", place, "--ignore-not-found") })
			in := []string{"-n", place}
			arguments := map[string][]string{
				"create":           {"create", "-f", "-"},
				"apply":            {"apply", "--server-side", "--force-conflicts", "-f", "-"},
				"replace":          {"replace", "-f", "-"},
				"patch":            {"patch", "secret", object, "--type=merge", "-p", test.written},
				"delete":           {"delete", "secret", object},
				"deletecollection": {"delete", "--raw", "/api/v1/namespaces/" + place + "/secrets"},
			}[test.verb]
			if test.verb == "deletecollection" {
				in = nil
			}
			_, err := cluster.Kubectl(manifest(place, object, test.written), slices.Concat(operator, arguments, in)...)
			switch {
			case test.refused == "" && err != nil:
				t.Error(err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("got %v, want a refusal: %s", err, test.refused)
			}
		})
	}

	t.Run("the same writes by another account", func(t *testing.T) {
		kubectl(t, manifest(namespace, "foreign", "}\nstringData: {password: a}\n"), "create", "-f", "-")
		kubectl(t, "", "delete", "secret", "foreign", "-n", namespace)
	})
}
