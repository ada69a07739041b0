// Package chart renders charts/merchant-operator as Helm does, and asks a real kube-apiserver, the program itself and
// a real redis-server what the result means: that every toggle is accepted, that pods keep the security standard of their
// namespace, what each service account may do, and that wrong values are refused with a sentence that helps. It has
// only tests.
package chart

import (
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

const (
	release     = "merchant-operator"
	system      = kubetest.SystemNamespace
	credentials = kubetest.CredentialsNamespace
)

// namespaces are there before the chart is, as docs/install.md makes them; those of credentials and shops too, for
// a dry run of what is in them.
const namespaces = `
apiVersion: v1
kind: Namespace
metadata:
  name: merchant-operator-system
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Namespace
metadata: {name: merchant-operator-credentials}
---
apiVersion: v1
kind: Namespace
metadata: {name: shops}
---
apiVersion: v1
kind: Namespace
metadata: {name: more-shops}
`

// cluster is the one control plane of this package's tests.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		cluster = c
		routes, err := httpRouteCRD()
		if err != nil {
			return err
		}
		// InstallCRDs waits until the API server serves the kind.
		if _, err := envtest.InstallCRDs(c.Environment.Config, envtest.CRDInstallOptions{Paths: []string{routes}, MaxTime: time.Minute}); err != nil {
			return err
		}
		_, err = c.Kubectl(namespaces, "apply", "-f", "-")
		return err
	})
}

// httpRouteCRD is the Gateway API's own definition, from the module that has its Go types.
func httpRouteCRD() (string, error) {
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of the Gateway API: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(directory)), "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml"), nil
}

func kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// manifests are what Helm would send, by template.
type manifests map[string]string

// load reads the chart once for all tests.
var load = sync.OnceValues(func() (*helm.Chart, error) { return loader.Load(repository.Path("charts", "merchant-operator")) })

// tryRender renders the chart with values in YAML, of which later ones win, as `helm install merchant-operator -n
// merchant-operator-system` does with files.
func tryRender(t *testing.T, texts ...string) (manifests, error) {
	t.Helper()
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return tryRenderAs(t, chart, chartutil.ReleaseOptions{Name: release, Namespace: system, Revision: 1, IsInstall: true}, texts...)
}

func tryRenderAs(t *testing.T, chart *helm.Chart, options chartutil.ReleaseOptions, texts ...string) (manifests, error) {
	t.Helper()
	merged := map[string]any{}
	for _, text := range texts {
		values, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatalf("%v in these values:\n%s", err, text)
		}
		merged = chartutil.MergeTables(values, merged)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}
	full, err := chartutil.ToRenderValues(chart, merged, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, full)
}

func render(t *testing.T, values ...string) manifests {
	t.Helper()
	out, err := tryRender(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stream is all of it in one text, without the notes.
func (m manifests) stream() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if path.Ext(name) == ".yaml" {
			parts = append(parts, m[name])
		}
	}
	return strings.Join(parts, "\n---\n")
}

// objects are those of a text of several documents. The key is Kind/name, and @namespace if that is not the release's.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var content map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(content) == 0 {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		key := object.GetKind() + "/" + object.GetName()
		if namespace := object.GetNamespace(); namespace != "" && namespace != system {
			key += "@" + namespace
		}
		if _, twice := out[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		out[key] = object
	}
	return out
}

// one returns the object of a key.
func one(t *testing.T, all map[string]*unstructured.Unstructured, key string) *unstructured.Unstructured {
	t.Helper()
	object, found := all[key]
	if !found {
		t.Fatalf("there is no %s, only %v", key, slices.Sorted(maps.Keys(all)))
	}
	return object
}

// get decodes the object of a key; a field that its type does not have fails t.
func get[T any](t *testing.T, all map[string]*unstructured.Unstructured, key string) T {
	t.Helper()
	var out T
	object := one(t, all, key)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return out
}

// What is random or looked up differs at each rendering, and Argo CD would apply it again and again.
func TestRender_Deterministic(t *testing.T) {
	for _, values := range []string{"", placed} {
		if diff := cmp.Diff(render(t, withConsole, values), render(t, withConsole, values)); diff != "" {
			t.Errorf("with %q (-once +again):\n%s", values, diff)
		}
	}
}

// A manifest the API server rewrites, by a default or by dropping a field, would be written by every sync.
func TestApply_SecondWritesNothing(t *testing.T) {
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`
	text := render(t, withConsole, "console: {ingress: {enabled: true}, httpRoute: {enabled: true, parentRefs: [{name: public}]}}", "apiserver: {trustedProxies: [10.0.0.0/8]}", "ingress: {enabled: true, className: nginx}", "httpRoute: {enabled: true, parentRefs: [{name: public}]}",
		"apiserver: {autoscaling: {enabled: true}}", "rails: [{namespace: rails, serviceAccountName: card}]", placed).stream()
	kubectl(t, text, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, withoutKept(text), "delete", "--ignore-not-found", "-f", "-") })
	kubectl(t, "", "wait", "flowschemas", "--all", "--for=condition=Dangling=False", "--timeout=1m") // the API server writes it once
	first := kubectl(t, text, "apply", "-f", "-", "-o", versions)
	if diff := cmp.Diff(first, kubectl(t, text, "apply", "-f", "-", "-o", versions)); diff != "" {
		t.Errorf("applying it again writes (-once +again):\n%s", diff)
	}
}

// withoutKept is what helm uninstall removes; without controllers, a Namespace would never be gone.
func withoutKept(text string) string {
	var removed []string
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if !strings.Contains(document, "helm.sh/resource-policy: keep") {
			removed = append(removed, document)
		}
	}
	return strings.Join(removed, "\n---")
}

func TestCRDs_GeneratedAndKept(t *testing.T) {
	all := objects(t, render(t, "").stream())
	for _, plural := range []string{"merchants", "apikeys"} {
		text := repository.Read(t, "config", "crd", "bases", "merchant-operator.io_"+plural+".yaml")
		var want map[string]any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got := one(t, all, "CustomResourceDefinition/"+plural+".merchant-operator.io")
		if diff := cmp.Diff(want["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s is not that of config/crd; run `make generate` (-want +got):\n%s", plural, diff)
		}
		if got.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s, and with it every object, is gone after helm uninstall", plural)
		}
	}
	if one(t, all, "Namespace/"+credentials).GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Error("the credentials namespace, and with it every key, is gone after helm uninstall")
	}
}

// A release that watches some namespaces leaves the Merchants of the others alone. test/verify/manifests asks the API server what the policy
// refuses.
func TestDeletionPolicy_SomeNamespaces(t *testing.T) {
	for values, want := range map[string][]any{
		"":                         nil,
		"watchNamespaces: [shops]": {map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{"shops"}}},
	} {
		all := objects(t, render(t, "merchantDeletionPolicy: {enabled: true}", values).stream())
		binding := one(t, all, "ValidatingAdmissionPolicyBinding/merchant-operator-merchant-deletion")
		namespaces, _, err := unstructured.NestedSlice(binding.Object, "spec", "matchResources", "namespaceSelector", "matchExpressions")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, namespaces); diff != "" {
			t.Errorf("with %q, namespaces of the policy (-want +got):\n%s", values, diff)
		}
	}
}

// The FlowSchemas name the accounts of the release and the namespaces that it manages. Two releases
// in a cluster have their own each. test/verify/manifests asks the API server which requests they
// get.
func TestFlowSchema_Names(t *testing.T) {
	for name, test := range map[string]struct {
		values, fullname string
		namespaces       []string
	}{
		"all namespaces":               {"{}", "merchant-operator", []string{"*"}},
		"another name, and namespaces": {"{fullnameOverride: pay, watchNamespaces: [shops, more-shops]}", "pay", []string{"shops", "more-shops"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, withConsole, "flowSchema: {tenants: {enabled: true}}", test.values).stream())
			var accounts, subjects []string
			for key, object := range all {
				if object.GetKind() == "ServiceAccount" {
					accounts = append(accounts, strings.TrimPrefix(key, "ServiceAccount/"))
				}
			}
			for _, subject := range get[flowcontrolv1.FlowSchema](t, all, "FlowSchema/"+test.fullname).Spec.Rules[0].Subjects {
				if subject.ServiceAccount.Namespace != system {
					t.Errorf("an account of %s", subject.ServiceAccount.Namespace)
				}
				subjects = append(subjects, subject.ServiceAccount.Name)
			}
			slices.Sort(accounts)
			slices.Sort(subjects)
			if diff := cmp.Diff(accounts, subjects); diff != "" {
				t.Errorf("accounts (-of the release +of the FlowSchema):\n%s", diff)
			}
			tenants := get[flowcontrolv1.FlowSchema](t, all, "FlowSchema/"+test.fullname+"-tenants").Spec
			one(t, all, "PriorityLevelConfiguration/"+tenants.PriorityLevelConfiguration.Name)
			if diff := cmp.Diff(test.namespaces, tenants.Rules[0].ResourceRules[0].Namespaces); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// The admission policy judges the release's own account and credentials namespace. test/verify/manifests asks the API server what it refuses.
func TestOperatorSecretsPolicy_Names(t *testing.T) {
	for name, test := range map[string]struct{ values, fullname, namespace string }{
		"defaults":    {"", "merchant-operator", credentials},
		"other names": {"{fullnameOverride: pay, credentialsNamespace: {name: pay-keys}}", "pay", "pay-keys"},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, test.values).stream())
			one(t, all, "ServiceAccount/"+test.fullname)
			policy := get[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy/"+test.fullname+"-operator-secrets").Spec
			got := []string{policy.MatchConditions[0].Expression, policy.Variables[0].Expression}
			want := []string{
				`request.userInfo.username == "system:serviceaccount:` + system + `:` + test.fullname + `"`,
				`request.namespace == "` + test.namespace + `"`,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the account and the namespace of the policy (-want +got):\n%s", diff)
			}
			binding := get[admissionv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding/"+test.fullname+"-operator-secrets").Spec
			if binding.PolicyName != test.fullname+"-operator-secrets" {
				t.Errorf("the binding is of %s", binding.PolicyName)
			}
		})
	}
	off := objects(t, render(t, "operatorSecretsPolicy: {enabled: false}").stream())
	if _, found := off["ValidatingAdmissionPolicy/merchant-operator-operator-secrets"]; found {
		t.Error("the policy is there although it is switched off")
	}
}
