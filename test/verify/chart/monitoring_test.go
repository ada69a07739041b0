package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const monitored = `
monitoring:
  enabled: true
  readers: [{namespace: monitoring, serviceAccountName: prometheus-k8s}]
`

// What the Prometheus operator would refuse is refused here: its own types know no other fields.
func TestMonitors_Valid(t *testing.T) {
	all := objects(t, render(t, monitored).stream())
	monitor := get[monitoringv1.ServiceMonitor](t, all, "ServiceMonitor/merchant-operator")
	if n := len(monitor.Spec.Endpoints); n != 1 || string(*monitor.Spec.Endpoints[0].Scheme) != "https" {
		t.Errorf("%d endpoints, or one that is read in the clear", n)
	}
	service := get[corev1.Service](t, all, "Service/merchant-operator-ops")
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[label] != value {
			t.Errorf("the ServiceMonitor wants %s=%s, and the Service of the ops ports has %q", label, value, service.Labels[label])
		}
	}
	if port := monitor.Spec.Endpoints[0].Port; service.Spec.Ports[0].Name != port {
		t.Errorf("the Service has no port %s", port)
	}
}

// Helm renders the alerts and the dashboard of config/prometheus as they are, though both have braces. test/verify/monitoring tests them.
func TestMonitoring_BracesKept(t *testing.T) {
	all := objects(t, render(t, monitored).stream())
	var want monitoringv1.PrometheusRule
	if err := yaml.UnmarshalStrict([]byte(repository.Read(t, "config", "prometheus", "rules.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	got := get[monitoringv1.PrometheusRule](t, all, "PrometheusRule/merchant-operator")
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("alerts (-config/prometheus +chart):\n%s", diff)
	}
	var optional monitoringv1.PrometheusRule
	if err := yaml.UnmarshalStrict([]byte(repository.Read(t, "config", "prometheus", "refunds", "rules.yaml")), &optional); err != nil {
		t.Fatal(err)
	}
	want.Spec.Groups = append(want.Spec.Groups, optional.Spec.Groups...)
	confirmed := objects(t, render(t, monitored, "monitoring: {prometheusRule: {refundsConfirmed: true}}").stream())
	if diff := cmp.Diff(want.Spec, get[monitoringv1.PrometheusRule](t, confirmed, "PrometheusRule/merchant-operator").Spec); diff != "" {
		t.Errorf("alerts where rails confirm refunds (-config/prometheus +chart):\n%s", diff)
	}
	shown := get[corev1.ConfigMap](t, all, "ConfigMap/merchant-operator-dashboard")
	dashboard := strings.TrimSpace(repository.Read(t, "config", "prometheus", "dashboard.json"))
	if diff := cmp.Diff(dashboard, shown.Data["merchant-operator.json"]); diff != "" || shown.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the dashboard, with the labels %v (-config/prometheus +chart):\n%s", shown.Labels, diff)
	}
}

// A watched port is closed to everybody else, in every role, and the kubelet still gets an answer.
func TestOpsPort_ClosedToOthers(t *testing.T) {
	for values, secure := range map[string]bool{"": false, monitored: true} {
		for name, template := range templates(t, withConsole, values) {
			if !slices.Contains(roles, name) {
				continue
			}
			container := template.Spec.Containers[0]
			if got := slices.Contains(container.Args, "--secure-metrics"); got != secure {
				t.Errorf("%s has --secure-metrics: %t, want %t", name, got, secure)
			}
			for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
				if got := probe.HTTPGet.Scheme == corev1.URISchemeHTTPS; got != secure {
					t.Errorf("%s is probed over TLS: %t, want %t", name, got, secure)
				}
			}
		}
	}
	all := objects(t, render(t, withConsole, monitored).stream())
	guard := get[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding/merchant-operator-metrics-guard")
	reader := get[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding/merchant-operator-metrics-reader")
	wantReader := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "monitoring", Name: "prometheus-k8s"}}
	wantGuard := []rbacv1.Subject{
		{Kind: "ServiceAccount", Namespace: system, Name: "merchant-operator"},
		{Kind: "ServiceAccount", Namespace: system, Name: "merchant-operator-dispatcher"},
		{Kind: "ServiceAccount", Namespace: system, Name: "merchant-operator-console"},
	}
	if diff := cmp.Diff([][]rbacv1.Subject{wantGuard, wantReader}, [][]rbacv1.Subject{guard.Subjects, reader.Subjects}); diff != "" {
		t.Errorf("who may ask who reads, and who may read (-want +got):\n%s", diff)
	}
}

func TestOpsPort_OwnCertificate(t *testing.T) {
	values := []string{withConsole, monitored, "monitoring: {certificateSecretName: ops-tls}", "redis: {allowInsecure: true, type: Server, addresses: ['a:1'], tls: {enabled: true, caSecretName: ca}}"}
	for name, template := range templates(t, values...) {
		container := template.Spec.Containers[0]
		if !slices.Contains(container.Args, "--ops-cert-dir=/etc/merchant-operator/ops-certificate") {
			t.Errorf("%s makes its certificate itself", name)
		}
		var mounted, volumes []string
		for _, mount := range container.VolumeMounts {
			mounted = append(mounted, mount.Name)
		}
		for _, volume := range template.Spec.Volumes {
			if volume.Projected != nil {
				volumes = append(volumes, volume.Name+" for "+volume.Projected.Sources[0].ServiceAccountToken.Audience)
				continue
			}
			volumes = append(volumes, volume.Name+" of "+volume.Secret.SecretName)
		}
		wantMounts, wantVolumes := []string{"redis-ca", "ops-certificate"}, []string{"redis-ca of ca", "ops-certificate of ops-tls"}
		switch name {
		case "merchant-operator": // it does not speak to Redis
			wantMounts, wantVolumes = wantMounts[1:], wantVolumes[1:]
		case "merchant-operator-apiserver":
			wantMounts, wantVolumes = append(wantMounts, "internal-certificate"), append(wantVolumes, "internal-certificate of internal-tls")
		case "merchant-operator-console":
			wantMounts, wantVolumes = append(wantMounts, "internal-ca", "internal-token"), append(wantVolumes, "internal-ca of internal-tls", "internal-token for merchant-operator")
		}
		if diff := cmp.Diff([][]string{wantMounts, wantVolumes}, [][]string{mounted, volumes}); diff != "" {
			t.Errorf("%s: mounts and volumes (-want +got):\n%s", name, diff)
		}
	}
	monitor := get[monitoringv1.ServiceMonitor](t, objects(t, render(t, values...).stream()), "ServiceMonitor/merchant-operator")
	tls := monitor.Spec.Endpoints[0].TLSConfig
	if tls.InsecureSkipVerify != nil || tls.CA.Secret.Name != "ops-tls" || *tls.ServerName != "merchant-operator-ops."+system+".svc" {
		t.Errorf("Prometheus does not verify the certificate: %+v", tls)
	}
}

// monitoringCRDs stand for those of the Prometheus operator, whose types TestMonitors_Valid knows.
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

func TestMonitoring_Toggles(t *testing.T) {
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

func TestMonitoring_NoReader(t *testing.T) {
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

// A Prometheus that may not read files takes the token from a Secret.
func TestServiceMonitor_Token(t *testing.T) {
	const values = "monitoring: {enabled: true, readers: [{namespace: monitoring, serviceAccountName: prometheus}], serviceMonitor: {tokenSecretName: scraper, tokenSecretKey: t}}"
	text := render(t, values).stream()
	monitor := get[monitoringv1.ServiceMonitor](t, objects(t, text), "ServiceMonitor/merchant-operator")
	token := monitor.Spec.Endpoints[0].Authorization
	if token == nil || token.Credentials == nil || token.Credentials.Name != "scraper" || token.Credentials.Key != "t" {
		t.Errorf("the token is %+v", token)
	}
	if strings.Contains(text, "bearerTokenFile") {
		t.Error("it also reads a file")
	}
}
