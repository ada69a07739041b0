package observability

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
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

const runbooks = "https://github.com/merchant-operator/merchant-operator/blob/main/docs/runbooks/"

// rules is the PrometheusRule; a field that its type does not have fails t.
func rules(t *testing.T) monitoringv1.PrometheusRule {
	t.Helper()
	text, err := os.ReadFile(inRepository("config", "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rule monitoringv1.PrometheusRule
	if err := yaml.UnmarshalStrict(text, &rule); err != nil {
		t.Fatal(err)
	}
	return rule
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
	tools, err := filepath.Abs(inRepository("go.tools.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for i, argument := range arguments {
		if strings.HasSuffix(argument, ".yaml") {
			arguments[i] = filepath.Join(directory, argument)
		}
	}
	command := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=" + tools, "promtool"}, arguments...)...)
	command.Env = append(os.Environ(), "GOFLAGS=-tags=remove_all_sd")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", arguments, err, out)
	}
}

func TestPrometheusTakesTheAlerts(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "rules.yaml")
}

func TestAlertsFireWhenTheyMust(t *testing.T) { promtool(t, "test", "rules", "alerts.yaml") }

// An alert that was never seen to fire, or never to be silent, is not tested.
func TestEveryAlertHasCasesOfBothKinds(t *testing.T) {
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

func TestEveryAlertCanBeAnswered(t *testing.T) {
	series := known(t)
	for name, alert := range alerts(t) {
		assertAnswerable(t, name, alert.Expr.String(), series)
	}
}

// sections are what a runbook page begins with; more may come after them.
var sections = []string{"## What it means", "## Impact", "## Look at", "## Do"}

func TestEveryAlertHasARunbook(t *testing.T) {
	var pages []string
	for name, alert := range alerts(t) {
		pages = append(pages, name+".md")
		if got := alert.Annotations["runbook_url"]; got != runbooks+name+".md" {
			t.Errorf("%s: runbook_url is %s", name, got)
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("%s says nothing", name)
		}
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has the severity %q", name, severity)
		}
		text := page(t, "runbooks", name+".md")
		var headings []string
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "## ") {
				headings = append(headings, line)
			}
		}
		if diff := cmp.Diff(sections, headings[:min(len(headings), len(sections))]); diff != "" || !strings.HasPrefix(text, "# "+name+"\n") {
			t.Errorf("docs/runbooks/%s.md: its heading, or its sections (-want +got):\n%s", name, diff)
		}
		line := regexp.MustCompile(`(?m)^\| \[` + name + `\]\(runbooks/` + name + `\.md\) \| ` + alert.Labels["severity"] + ` \| `)
		if !line.MatchString(page(t, "observability.md")) {
			t.Errorf("docs/observability.md does not list %s as it is", name)
		}
	}
	entries, err := os.ReadDir(inRepository("docs", "runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, entry := range entries {
		there = append(there, entry.Name())
	}
	slices.Sort(pages)
	if diff := cmp.Diff(pages, there); diff != "" {
		t.Errorf("docs/runbooks (-alerts +pages):\n%s", diff)
	}
}

// A page that names a metric which is no more sends people nowhere in the night.
func TestRunbooksNameMetricsThatThereAre(t *testing.T) {
	series := known(t)
	for name := range alerts(t) {
		for _, metric := range regexp.MustCompile("`(merchant_operator_[a-z_]+)").FindAllStringSubmatch(page(t, "runbooks", name+".md"), -1) {
			if series[metric[1]] == nil && series[metric[1]+"_count"] == nil {
				t.Errorf("docs/runbooks/%s.md names %s, which no role has", name, metric[1])
			}
		}
	}
}
