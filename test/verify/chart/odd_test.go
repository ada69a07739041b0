package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

// everything turns on what is off by default, so that each template has its objects.
const everything = `
merchantDeletionPolicy: {enabled: true}
flowSchema: {tenants: {enabled: true}}
apiserver: {trustedProxies: [10.0.0.0/8], autoscaling: {enabled: true}}
console: {autoscaling: {enabled: true}, ingress: {enabled: true}, httpRoute: {enabled: true, parentRefs: [{name: public}]}}
httpRoute: {enabled: true, parentRefs: [{name: public}]}
ingress: {enabled: true, hosts: [pay.example.com], tlsSecretName: tls}
rails: [{namespace: rails, serviceAccountName: card}]
receipts: {smtpURL: 'smtps://mail.example.com', from: pay@example.com}
`

// Null, in a file of values or after --set, is the default: it would turn off policies, and limits be 0.
func TestValues_Null(t *testing.T) {
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	want := objects(t, render(t, "").stream())
	paths := sections(chart.Values)
	if len(paths) < 200 {
		t.Fatalf("only %d values: %v", len(paths), paths)
	}
	for _, path := range paths {
		out, err := tryRender(t, nested(path, "null"))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if diff := cmp.Diff(want, objects(t, out.stream())); diff != "" {
			t.Errorf("%s: null is not the default (-want +got):\n%s", path, diff)
		}
	}
}

// Null takes away what a map has whose names are the user's.
func TestValues_NullLimit(t *testing.T) {
	limits := templates(t, "apiserver: {resources: {limits: {memory: null}}}")["merchant-operator-apiserver"].Spec.Containers[0].Resources.Limits
	if len(limits) > 0 {
		t.Errorf("limits are %v", limits)
	}
}

// Helm's --reuse-values gives a chart the values of the release before, without those that are new.
func TestValues_Reused(t *testing.T) {
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Collect(maps.Keys(chart.Values)), "") {
		older := *chart
		older.Values = maps.Clone(chart.Values)
		delete(older.Values, name)
		if name == "" {
			older.Values = map[string]any{}
		}
		out, err := tryRenderAs(t, &older, chartutil.ReleaseOptions{Name: release, Namespace: system})
		if err != nil {
			t.Errorf("without %q: %v", name, err)
			continue
		}
		if diff := cmp.Diff(objects(t, render(t).stream()), objects(t, out.stream())); diff != "" {
			t.Errorf("without %q (-want +got):\n%s", name, diff)
		}
	}
}

// Each template sets the defaults, as Helm renders them in any order.
func TestTemplates_BeginWithDefaults(t *testing.T) {
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range chart.Templates {
		text := string(template.Data)
		if first, _, _ := strings.Cut(text, ".Values"); !strings.HasSuffix(template.Name, ".tpl") && !strings.Contains(first, `{{- include "merchant-operator.defaults" . -}}`) {
			t.Errorf("%s reads values before it has included merchant-operator.defaults", template.Name)
		}
	}
}

// Names that YAML reads as numbers, truth or null.
func TestValues_NamesLikeNumbers(t *testing.T) {
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"4711", "1e3", "0x1f", "12e4567", "2026-11-26", "null", "true", "on", "1pay", strings.Repeat("a", 53)} {
		t.Run(name, func(t *testing.T) {
			out, err := tryRenderAs(t, chart, chartutil.ReleaseOptions{Name: name, Namespace: name}, withConsole, everything)
			if err != nil {
				t.Fatal(err)
			}
			accept(t, out, name)
		})
	}
	for _, name := range []string{"4711", "1e3", "null", "true"} {
		t.Run("all values are "+name, func(t *testing.T) {
			out, err := tryRender(t, withConsole, everything, named(chart, name),
				"{console: {oidc: {usernameClaim: sub}}, redis: {type: Sentinel, addresses: ['a:1'], tls: {enabled: true}}}",
				"{apiserver: {serviceAccount: {name: ''}}, dispatcher: {serviceAccount: {name: ''}}, console: {serviceAccount: {name: ''}}}") // each its own
			if err != nil {
				t.Fatal(err)
			}
			accept(t, out, name)
		})
	}
}

// Helm allows a dot in the name of a release, and Kubernetes none in that of a Service.
func TestRelease_Dot(t *testing.T) {
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tryRenderAs(t, chart, chartutil.ReleaseOptions{Name: "pay.prod", Namespace: system}, withConsole, everything)
	if err != nil {
		t.Fatal(err)
	}
	accept(t, out, credentials)
}

// Flux renders with kustomize, which refuses a name that is there twice. objects does so too.
func TestLabels_Twice(t *testing.T) {
	const labels = "{app.kubernetes.io/component: payments, app.kubernetes.io/name: shop, app.kubernetes.io/managed-by: me, team: pay}"
	values := fmt.Sprintf(`
apiserver: {podLabels: %[1]s}
monitoring: {enabled: true, readers: [{namespace: monitoring, serviceAccountName: prometheus}], serviceMonitor: {labels: %[1]s}, prometheusRule: {labels: %[1]s}, dashboard: {labels: %[1]s}}
`, labels)
	all := objects(t, render(t, values).stream())
	for _, key := range []string{"ServiceMonitor/merchant-operator", "ConfigMap/merchant-operator-dashboard"} { // selected by the user's
		if got := one(t, all, key).GetLabels(); got["team"] != "pay" || got["app.kubernetes.io/name"] != "shop" || got["app.kubernetes.io/instance"] == "" {
			t.Errorf("%s has the labels %v", key, got)
		}
	}
	if got := templates(t, values)["merchant-operator-apiserver"].Labels; got["team"] != "pay" || got["app.kubernetes.io/component"] != "apiserver" {
		t.Errorf("pods have the labels %v, and the Deployment would not select them", got)
	}
}

// accept decodes the objects strictly and asks the API server, in namespaces that exist.
func accept(t *testing.T, out manifests, namespace string) {
	t.Helper()
	objects(t, out.stream())
	for _, name := range []string{namespace, "rails"} {
		manifest := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %q}}", name)
		kubectl(t, manifest, "apply", "-f", "-")
	}
	kubectl(t, out.stream(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
}

// sections are the paths of all values and their sections.
func sections(values map[string]any) []string {
	var paths []string
	for name, value := range values {
		paths = append(paths, name)
		if inner, isMap := value.(map[string]any); isMap && !slices.Contains([]string{"resources", "labels", "podSecurityContext"}, name) {
			for _, path := range sections(inner) {
				paths = append(paths, name+"."+path)
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// nested is YAML in which the path has the value.
func nested(path, value string) string {
	names := strings.Split(path, ".")
	return "{" + strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names))
}

// named are values in which each text that may be any name is this one.
func named(chart *helm.Chart, name string) string {
	var fill func(values map[string]any, schema map[string]any) map[string]any
	fill = func(values, schema map[string]any) map[string]any {
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for key, value := range values {
			property, _ := properties[key].(map[string]any)
			switch value := value.(type) {
			case map[string]any:
				if inner := fill(value, property); len(inner) > 0 {
					out[key] = inner
				}
			case string:
				if property["enum"] == nil && (property["pattern"] == nil || key == "name") && property["type"] == "string" && !kept[key] {
					out[key] = name
				}
			}
		}
		return out
	}
	var schema map[string]any
	if err := yaml.Unmarshal(chart.Schema, &schema); err != nil {
		return err.Error()
	}
	text, err := yaml.Marshal(fill(chart.Values, schema))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// kept are texts of a form that the API server checks.
var kept = map[string]bool{"size": true, "from": true}
