package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/devenvtest"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"sigs.k8s.io/yaml"
)

// patience bounds every wait for something that takes seconds on an idle machine.
const patience = 2 * time.Minute

// A real Prometheus scrapes the roles of `make run`, which are in use, and is asked what Grafana would ask.
func TestPrometheusAnswersTheDashboard(t *testing.T) {
	run := devenvtest.Start(t, devenvtest.Build(t))
	traffic := newTraffic(t, run)
	prometheus := startPrometheus(t, traffic.env)

	var targets struct {
		ActiveTargets []struct{ Health, LastError string }
	}
	await.Seeing(t, patience, "all roles are scraped", func() (string, bool) {
		prometheus.get(t, "/api/v1/targets", &targets)
		up := 0
		for _, target := range targets.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return fmt.Sprint(targets), up == 5
	})

	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	await.Seeing(t, patience, "every alert is evaluated without error", func() (string, bool) {
		prometheus.get(t, "/api/v1/rules", &loaded)
		healthy := 0
		for _, group := range loaded.Groups {
			for _, rule := range group.Rules {
				if rule.Health == "ok" {
					healthy++
				}
			}
		}
		return fmt.Sprint(loaded), healthy == len(alerts(t))
	})

	empty := documentedAsEmpty(t)
	unanswered := map[string]string{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			unanswered[p.Title+": "+target.LegendFormat] = target.Expr
		}
	}
	for name := range empty {
		if unanswered[name] == "" {
			t.Errorf("docs/observability.md says why %q is empty, which the dashboard does not have", name)
		}
	}
	// Rates need traffic between two scrapes, so it goes on while the questions are asked.
	await.Seeing(t, patience, "every query of the dashboard has data", func() (string, bool) {
		traffic.send()
		missing := ""
		for name, expr := range unanswered {
			switch answered := prometheus.hasData(t, expr); {
			case answered && empty[name]:
				t.Fatalf("docs/observability.md says why %q is empty, but it has data", name)
			case answered:
				delete(unanswered, name)
			case !empty[name]:
				missing += name + "\n"
			}
		}
		return missing, missing == ""
	})
	want := map[string]bool{}
	for name := range unanswered {
		want[name] = true
	}
	if diff := cmp.Diff(want, empty); diff != "" {
		t.Errorf("queries without data (-seen +docs/observability.md):\n%s", diff)
	}
}

// documentedAsEmpty are the queries, "panel: legend", for which docs/observability.md says why they have no data.
func documentedAsEmpty(t *testing.T) map[string]bool {
	t.Helper()
	_, section, found := strings.Cut(repository.Read(t, "docs", "observability.md"), "| Panel | Query | No data in `make run` because |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/observability.md has no table of queries without data")
	}
	empty := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := regexp.MustCompile(`^\| (.+) \| (.+) \| (.{10,}) \|\n$`).FindStringSubmatch(line)
		if cells == nil {
			break
		}
		empty[cells[1]+": "+cells[2]] = true
	}
	return empty
}

// server is a running Prometheus.
type server struct{ url string }

// startPrometheus scrapes the roles every second, with the labels that a ServiceMonitor gives their series.
func startPrometheus(t *testing.T, env map[string]string) server {
	t.Helper()
	directory := t.TempDir()
	var scrapes []any
	for pod, variable := range map[string]string{
		"operator": "OPERATOR_OPS_URL", "apiserver-1": "API_OPS_URL", "apiserver-2": "API_OPS_URL_2", "dispatcher": "DISPATCHER_OPS_URL",
		"console": "CONSOLE_OPS_URL",
	} {
		scrapes = append(scrapes, map[string]any{
			"targets": []string{strings.TrimPrefix(env[variable], "http://")},
			"labels":  map[string]string{"namespace": namespace, "pod": pod},
		})
	}
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("prometheus.yaml", map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{write("rules.yaml", rules(t).Spec)},
		"scrape_configs": []any{map[string]any{"job_name": "merchant-operator-ops", "static_configs": scrapes}},
	})
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	var output bytes.Buffer
	command := exec.Command(prometheusProgram(t), "--config.file", config, "--log.level", "warn",
		"--storage.tsdb.path", filepath.Join(directory, "data"), "--web.listen-address", address)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	s := server{"http://" + address}
	await.Until(t, patience, "Prometheus is ready", func() bool {
		answer, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	return s
}

// prometheusProgram builds it, like promtool, if Go does not have it in its cache.
func prometheusProgram(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile="+repository.Path("go.tools.mod"), "prometheus")
	command.Dir = repository.Path()
	command.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -tags=remove_all_sd")
	command.Stderr = t.Output()
	path, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path))
}

// get asks Prometheus and decodes the data of its answer.
func (s server) get(t *testing.T, path string, data any) {
	t.Helper()
	answer, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.Status != "success" {
		t.Fatalf("%s: %s %s (%v)", path, answer.Status, envelope.Error, err)
	}
	if err := json.Unmarshal(envelope.Data, data); err != nil {
		t.Fatal(err)
	}
}

// hasData says whether a query gives a line in a graph: NaN gives none.
func (s server) hasData(t *testing.T, expr string) bool {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "1m", "$namespace", namespace).Replace(expr)
	var data struct {
		Result []struct{ Value [2]any }
	}
	s.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &data)
	for _, series := range data.Result {
		if series.Value[1] != "NaN" {
			return true
		}
	}
	return false
}
