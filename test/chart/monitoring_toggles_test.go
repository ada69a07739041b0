package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// monitoringCRDs stand for those of the Prometheus operator, whose types TestWhatWatchesIsUnderstood knows.
func monitoringCRDs() string {
	var text strings.Builder
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: %[1]s, singular: %[2]s, plural: %[2]ss}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, kind, strings.ToLower(kind))
	}
	return text.String()
}

func TestEveryToggleOfMonitoring(t *testing.T) {
	kubectl(t, monitoringCRDs(), "apply", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Established", "crd", "servicemonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	access := []string{
		"ClusterRole/merchant-operator-metrics-reader",
		"ClusterRoleBinding/merchant-operator-metrics-guard", "ClusterRoleBinding/merchant-operator-metrics-reader",
	}
	const alone = "monitoring: {serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}, dashboard: {enabled: false}}"
	for name, test := range map[string]struct {
		values string
		added  []string
	}{
		"only the closed ports":     {alone, nil},
		"all of it":                 {"", []string{"ServiceMonitor/merchant-operator", "PrometheusRule/merchant-operator", "ConfigMap/merchant-operator-dashboard"}},
		"all of it, with labels":    {"monitoring: {serviceMonitor: {interval: 1m, labels: {release: p}}, prometheusRule: {labels: {release: p}}, dashboard: {labels: {a: b}, annotations: {folder: pay}}}", []string{"ServiceMonitor/merchant-operator", "PrometheusRule/merchant-operator", "ConfigMap/merchant-operator-dashboard"}},
		"in some namespaces only":   {"watchNamespaces: [shops]\n" + alone, nil},
		"an operator's certificate": {"monitoring: {certificateSecretName: ops-tls, prometheusRule: {enabled: false}, dashboard: {enabled: false}}", []string{"ServiceMonitor/merchant-operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := render(t, least, monitored, test.values).stream()
			without := objects(t, render(t, least, test.values, "monitoring: {enabled: false}").stream())
			want := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(without)), access, test.added)))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(objects(t, text)))); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			kubectl(t, text, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		})
	}
}

func TestMonitoringWithoutAReaderIsRefused(t *testing.T) {
	for values, says := range map[string]string{
		"monitoring: {enabled: true}":                                     "monitoring.readers: set the service account",
		"monitoring: {enabled: true, readers: [{serviceAccountName: p}]}": "monitoring.readers: set namespace",
		"monitoring: {enabled: true, serviceMonitor: {interval: often}}":  "/monitoring/serviceMonitor/interval",
	} {
		if _, err := tryRender(t, values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", values, err, says)
		}
	}
}
