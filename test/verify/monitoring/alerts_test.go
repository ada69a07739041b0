// Package monitoring checks the alerts and the dashboard of config/prometheus: that Prometheus understands them, that they ask
// for metrics of docs/reference/metrics.md (test/observability compares that page with the roles), and that alerts fire when they must.
package monitoring

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

const runbooks = "https://github.com/merchant-operator/merchant-operator/blob/main/docs/runbooks/"

// rules is the PrometheusRule with the optional one; a field that their type does not have fails t.
func rules(t *testing.T) monitoringv1.PrometheusRule {
	t.Helper()
	var all monitoringv1.PrometheusRule
	for _, file := range []string{"rules.yaml", "refunds/rules.yaml"} {
		var rule monitoringv1.PrometheusRule
		if err := yaml.UnmarshalStrict([]byte(repository.Read(t, "config", "prometheus", file)), &rule); err != nil {
			t.Fatal(err)
		}
		all.Spec.Groups = append(all.Spec.Groups, rule.Spec.Groups...)
	}
	return all
}

func alerts(t *testing.T) map[string]monitoringv1.Rule {
	t.Helper()
	found := map[string]monitoringv1.Rule{}
	for _, group := range rules(t).Spec.Groups {
		for _, rule := range group.Rules {
			if _, twice := found[rule.Alert]; twice || rule.Alert == "" {
				t.Errorf("%q is no alert, or there twice", rule.Alert)
			}
			found[rule.Alert] = rule
		}
	}
	return found
}

// promtool runs in a directory with the rules as Prometheus itself reads them. Its other service discoveries would take
// minutes to compile.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	directory := t.TempDir()
	groups, err := yaml.Marshal(rules(t).Spec)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"rules.yaml": groups, "alerts.yaml": cases} {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, argument := range arguments {
		if strings.HasSuffix(argument, ".yaml") {
			arguments[i] = filepath.Join(directory, argument)
		}
	}
	command := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=" + repository.Path("go.tools.mod"), "promtool"}, arguments...)...)
	command.Dir = repository.Path()
	command.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -tags=remove_all_sd")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", arguments, err, out)
	}
}

func TestAlerts_Valid(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "rules.yaml")
}

func TestAlerts_Fire(t *testing.T) { promtool(t, "test", "rules", "alerts.yaml") }

// An alert that was never seen to fire, or never to be silent, is not tested.
func TestAlerts_HaveCasesOfBothKinds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	firing, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Fires) > 0 {
				firing[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	want := slices.Sorted(maps.Keys(alerts(t)))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(firing))); diff != "" {
		t.Errorf("alerts that fire in a case (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(silent))); diff != "" {
		t.Errorf("alerts that are silent in a case (-want +got):\n%s", diff)
	}
}

func TestAlerts_QueryExistingSeries(t *testing.T) {
	series := known(t)
	for name, alert := range alerts(t) {
		assertAnswerable(t, name, alert.Expr.String(), series)
	}
}

func TestAlerts_HaveRunbooks(t *testing.T) {
	want := map[string]bool{}
	for name, alert := range alerts(t) {
		want[name+".md"] = true
		if got := alert.Annotations["runbook_url"]; got != runbooks+name+".md" {
			t.Errorf("%s: runbook_url is %s", name, got)
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", name)
		}
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has the severity %q", name, severity)
		}
	}
	pages, err := os.ReadDir(repository.Path("docs", "runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, page := range pages {
		got[page.Name()] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/runbooks (-alerts +pages):\n%s", diff)
	}
}

// A page that names a metric which is no more sends people nowhere in the night.
func TestRunbooks_MetricsExist(t *testing.T) {
	series := known(t)
	for name := range alerts(t) {
		for _, metric := range regexp.MustCompile("`(merchant_operator_[a-z_]+)").FindAllStringSubmatch(repository.Read(t, "docs", "runbooks", name+".md"), -1) {
			if series[metric[1]] == nil && series[metric[1]+"_count"] == nil {
				t.Errorf("docs/runbooks/%s.md names %s, which no role has", name, metric[1])
			}
		}
	}
}
