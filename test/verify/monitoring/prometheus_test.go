package monitoring

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/devenvtest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/repository"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// patience bounds every wait for something that takes seconds on an idle machine.
const patience = 2 * time.Minute

// A real Prometheus scrapes the roles of `make run`, which are in use, and is asked what Grafana would ask.
func TestPrometheus_AnswersDashboard(t *testing.T) {
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

	empty := map[string]bool{"Leader: leaders": true, "TLS certificates: {{pod}} {{listener}}": true} // without data in `make run`, as docs/observability.md says
	unanswered := map[string]string{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			unanswered[p.Title+": "+target.LegendFormat] = target.Expr
		}
	}
	for name := range empty {
		if unanswered[name] == "" {
			t.Errorf("the dashboard does not have %q, which may be empty", name)
		}
	}
	// Rates need traffic between two scrapes, so it goes on while the questions are asked.
	await.Seeing(t, patience, "every query of the dashboard has data", func() (string, bool) {
		traffic.send()
		missing := ""
		for name, expr := range unanswered {
			switch answered := prometheus.hasData(t, expr); {
			case answered && empty[name]:
				t.Fatalf("%q has data, and docs/observability.md says that it is empty", name)
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
		t.Errorf("queries without data (-seen +expected):\n%s", diff)
	}
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

// kustomized is config/default with the components of console and monitoring, as docs/observability.md shows; by kind and name.
func kustomized(t *testing.T) map[string][]byte {
	t.Helper()
	directory := t.TempDir()
	path := func(name string) string {
		relative, err := filepath.Rel(directory, repository.Path("config", name))
		if err != nil {
			t.Fatal(err)
		}
		return relative
	}
	text := "resources: [" + path("default") + "]\ncomponents: [" + path("console") + ", " + path("prometheus") + ", " + path("prometheus/refunds") + "]\n"
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", directory).Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string][]byte{}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		var head corev1.ObjectReference // its kind and, in metadata, its name
		var named struct {
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(document), &named); err != nil {
			t.Fatal(err)
		}
		objects[head.Kind+"/"+named.Metadata.Name] = []byte(document)
	}
	return objects
}

func TestKustomize_MonitorsEveryOpsPort(t *testing.T) {
	objects := kustomized(t)
	for _, name := range []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-console", "merchant-operator-dispatcher"} {
		var deployment appsv1.Deployment
		if err := yaml.UnmarshalStrict(objects["Deployment/"+name], &deployment); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		if !slices.Contains(container.Args, "--secure-metrics") {
			t.Errorf("%s shows its metrics to everybody", name)
		}
		if container.LivenessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || container.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s is probed in the clear", name)
		}
	}
	var monitor monitoringv1.ServiceMonitor
	if err := yaml.UnmarshalStrict(objects["ServiceMonitor/merchant-operator"], &monitor); err != nil {
		t.Fatal(err)
	}
	var service corev1.Service
	if err := yaml.UnmarshalStrict(objects["Service/merchant-operator-ops"], &service); err != nil {
		t.Fatal(err)
	}
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[label] != value || service.Spec.Ports[0].Name != monitor.Spec.Endpoints[0].Port {
			t.Errorf("the ServiceMonitor does not find the Service of the ops ports by %s=%s", label, value)
		}
	}
	for _, key := range []string{"PrometheusRule/merchant-operator", "PrometheusRule/merchant-operator-refunds", "ConfigMap/merchant-operator-dashboard", "ClusterRole/merchant-operator-metrics-reader"} {
		if objects[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
}

// namespace is where the roles of a cluster run.
const namespace = "merchant-operator-system"

// traffic uses the product of `make run`, well and badly.
type traffic struct {
	t   *testing.T
	env map[string]string
	// key is of a merchant whose webhook answers 410 and that may send few requests.
	key string
}

const goneMerchant = `
apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata: {name: gone, namespace: shops}
spec:
  displayName: Gone
  rateLimit: {requestsPerSecond: 5, burst: 10}
  webhook: {url: %q}
---
apiVersion: merchant-operator.io/v1alpha1
kind: ApiKey
metadata: {name: gone, namespace: shops}
spec:
  merchantRef: {name: gone}
  delivery: {secretName: gone}
`

func newTraffic(t *testing.T, run *devenvtest.Run) *traffic {
	t.Helper()
	tr := &traffic{t: t, env: run.WaitForEnv(t)}
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	kubectl := func(input string, arguments ...string) string {
		command := exec.CommandContext(t.Context(), filepath.Join(run.Root, "bin", "kubectl"), append([]string{"--kubeconfig", tr.env["KUBECONFIG"]}, arguments...)...)
		command.Stdin = strings.NewReader(input)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", arguments, err, output)
		}
		return string(output)
	}
	kubectl(fmt.Sprintf(goneMerchant, gone.URL), "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "apikey/gone", "--timeout=60s")
	key, err := base64.StdEncoding.DecodeString(kubectl("", "get", "secret", "gone", "-o", "jsonpath={.data.apiKey}"))
	if err != nil {
		t.Fatal(err)
	}
	tr.key = string(key)
	for _, replica := range []string{"API_URL", "API_URL_2"} {
		await.Until(t, patience, "the key works", func() bool {
			return tr.call(tr.env[replica], http.MethodGet, fixture.Me, tr.key, "").Status != http.StatusUnauthorized
		})
	}
	return tr
}

// send makes every metric of the dashboard count something.
func (tr *traffic) send() {
	tr.t.Helper()
	api := tr.env["API_URL"]
	settle := func(id, token, payment string) {
		tr.call(tr.env["INTERNAL_URL"], http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", token,
			fmt.Sprintf(`{"paymentRef": %q, "outcome": "COMPLETED", "amountCents": 1250}`, payment))
	}
	paid, unpaid := tr.charge(tr.env["API_KEY"]), tr.charge(tr.env["API_KEY"])
	if paid == "" || unpaid == "" {
		return // over the merchant's limit for a short time
	}
	settle(paid, tr.env["RAIL_TOKEN"], "card-1")
	settle(paid, tr.env["RAIL_TOKEN"], "card-2") // late
	settle(paid, "not.a.token", "card-3")
	tr.call(tr.env["CONSOLE_URL"], http.MethodGet, "/signed-out", "", "")
	tr.call(api, http.MethodGet, fixture.Sessions+"/"+paid, "not a key", "")
	tr.expire(unpaid)

	if id := tr.charge(tr.env["TEST_API_KEY"]); id != "" {
		tr.call(api, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", tr.env["TEST_API_KEY"], "")
	}

	if fresh := tr.call(api, http.MethodPost, fixture.Rotate, tr.key, "").Text("fullKey"); fresh != "" {
		tr.key = fresh
	}
	if id := tr.charge(tr.key); id != "" { // else this merchant is over its limit
		tr.call(api, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", tr.key, "")
	}

	// What no role would write there: a request gets an error.
	damaged := session.NewID("aaaaaaaaaaaa", false)
	tr.redis(fmt.Sprintf("SET %ssession:%s text", redis.BucketKeyspace(damaged.Bucket()), damaged))
	tr.call(api, http.MethodGet, "/api/v1/public/sessions/"+damaged.String(), "", "")
}

// charge returns the id of a new session, or nothing when the merchant is over its limit.
func (tr *traffic) charge(key string) string {
	return tr.call(tr.env["API_URL"], http.MethodPost, fixture.Sessions, key, `{"amountCents": 1250, "customerEmail": "ada@example.com"}`).Text("sessionId")
}

func (tr *traffic) call(base, method, path, bearer, body string) fixture.Answer {
	tr.t.Helper()
	answer, err := fixture.Call(http.DefaultClient, base, method, path, bearer, body)
	if err != nil {
		tr.t.Fatal(err)
	}
	return answer
}

// expire makes a session due, which takes a minute without reaching into Redis.
func (tr *traffic) expire(id string) {
	parsed, err := session.ParseID(id)
	if err != nil {
		tr.t.Fatal(err)
	}
	bucket := redis.BucketKeyspace(parsed.Bucket())
	past := time.Now().Add(-time.Second).UnixMilli()
	tr.redis(fmt.Sprintf("HSET %ssession:%s x %d", bucket, id, past))
	tr.redis(fmt.Sprintf("ZADD %sexpiry %d %s", bucket, past, id))
}

// redis sends a command and reads the beginning of its answer.
func (tr *traffic) redis(command string) {
	tr.t.Helper()
	address, err := url.Parse(tr.env["REDIS_URL"])
	if err != nil {
		tr.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		tr.t.Fatal(err)
	}
	answer := make([]byte, 100)
	if n, err := conn.Read(answer); err != nil || answer[0] == '-' {
		tr.t.Fatalf("%s: %s (%v)", command, answer[:n], err)
	}
}
