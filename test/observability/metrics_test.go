package observability

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/observability/documented"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

func roles() []string { return []string{operatorRole, apiserverRole, dispatcherRole, consoleRole} }

// own reports whether a metric is one of the product's own.
func own(name string) bool { return strings.HasPrefix(name, "merchant_operator_") }

func TestMetrics_Conventions(t *testing.T) {
	for _, role := range roles() {
		_, families := scrape(t, role)
		var mine []*dto.MetricFamily
		for name, family := range families {
			if own(name) {
				mine = append(mine, family)
			}
		}
		problems, err := promlint.NewWithMetricFamilies(mine).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s: %s", role, problem.Metric, problem.Text)
		}
	}
}

// bounded are the labels of our metrics, and what their values look like. A label with a value that a caller or a
// merchant chose, or with an id in it, would grow without bounds and reveal who trades.
var bounded = map[string]*regexp.Regexp{
	"method":    regexp.MustCompile(`^(GET|HEAD|POST|OPTIONS|other)$`),
	"route":     regexp.MustCompile(`^(/[a-z0-9.]+|/\{(id|keyID)\})*$`),
	"code":      regexp.MustCompile(`^[1-5][0-9]{2}$`),
	"action":    regexp.MustCompile(`^[A-Z][A-Za-z]{4,20}$`),
	"status":    regexp.MustCompile(`^[1-5][0-9]{2}$`),
	"reason":    regexp.MustCompile(`^([a-z_]{2,24}[0-9x]*|[A-Z][A-Za-z]{4,20})$`),
	"mode":      regexp.MustCompile(`^(enforce|report|live|test)$`),
	"limit":     regexp.MustCompile(`^(merchant|address|rotations|sessions|account|namespace|replica)$`),
	"source":    regexp.MustCompile(`^(message|expiry|reread)$`),
	"outcome":   regexp.MustCompile(`^(COMPLETED|FAILED|delivered|dropped|webhook_removed|dead|expired|sent|refused)$`),
	"result":    regexp.MustCompile(`^[a-z_]{2,20}[0-9x]*$`),
	"age":       regexp.MustCompile(`^[0-9]+h$`),
	"use":       regexp.MustCompile(`^(used|unknown)$`),
	"cause":     regexp.MustCompile(`^(Initial|Trigger|Schedule|API|Recovery|gone|failing|timeout|connection|answer|cancelled)$`),
	"kind":      regexp.MustCompile(`^(key|merchant|webhook|tombstone|digest|Merchant|ApiKey|session\.[a-z_]+|key\.rotated|webhook\.test|)$`),
	"state":     regexp.MustCompile(`^(ready|reconciling|stalled|inactive|unknown|wanted|active)$`),
	"listener":  regexp.MustCompile(`^(public|internal|ops|console)$`),
	"server":    regexp.MustCompile(`^[0-9.]+:[0-9]+$`),
	"operation": regexp.MustCompile(`^[a-z_]{4,24}$`),
}

func TestMetrics_Labels(t *testing.T) {
	for _, role := range roles() {
		_, families := scrape(t, role)
		for name, family := range families {
			if !own(name) {
				continue
			}
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					form := bounded[label.GetName()]
					if form == nil || !form.MatchString(label.GetValue()) {
						t.Errorf("%s: %s has the label %s=%q", role, name, label.GetName(), label.GetValue())
					}
				}
			}
		}
	}
}

func TestMetrics_NoSecrets(t *testing.T) {
	for _, role := range roles() {
		text, _ := scrape(t, role)
		for _, secret := range append(shared.secrets, "acme", "Acme", "penelope", "Penelope", "mk_live_", "mk_test_", "whsec_", "mer_") {
			if strings.Contains(text, secret) {
				t.Errorf("the metrics of the %s hold %q", role, secret)
			}
		}
	}
}

// The trade has left its marks.
func TestMetrics_Counts(t *testing.T) {
	for _, expected := range []struct{ role, line string }{
		{apiserverRole, `merchant_operator_http_request_duration_seconds_count{method="POST",route="/api/v1/sessions",status="201"} 1`},
		{apiserverRole, `merchant_operator_http_request_duration_seconds_count{method="other",route="/api/v1/sessions/{id}",status="405"} 1`},
		{apiserverRole, `merchant_operator_http_unauthorized_total{reason="internal_token"} 1`},
		{apiserverRole, `merchant_operator_redis_operation_duration_seconds_count{operation="create"} 1`},
		{apiserverRole, `merchant_operator_key_rotations_total{cause="API"} 1`},
		{apiserverRole, `merchant_operator_directory_objects{kind="key"} 1`},
		{operatorRole, `merchant_operator_key_rotations_total{cause="Initial"} 1`},
		{operatorRole, `merchant_operator_resources{kind="Merchant",state="ready"} 1`},
		{dispatcherRole, `merchant_operator_webhook_attempts_total{result="delivered"} 2`},
		{consoleRole, `merchant_operator_console_sign_ins_total{result="unavailable"} 1`},
		{consoleRole, `merchant_operator_console_sign_ins_total{result="refused"} 1`},
		{consoleRole, `merchant_operator_console_sign_ins_total{result="done"} 1`},
		{consoleRole, `merchant_operator_console_actions_total{action="EditAllowlist",result="done"} 1`},
		{consoleRole, `merchant_operator_console_actions_total{action="RotateKey",result="failed"} 1`},
		{consoleRole, `merchant_operator_console_request_duration_seconds_count{code="409"} 1`},
	} {
		await.Until(t, fixture.Patience, expected.role+" shows "+expected.line, func() bool {
			text, _ := scrape(t, expected.role)
			return slices.Contains(strings.Split(text, "\n"), expected.line)
		})
	}
	text, _ := scrape(t, apiserverRole)
	if !regexp.MustCompile(`merchant_operator_http_rate_limited_total\{limit="address"\} [1-9]`).MatchString(text) {
		t.Error("nobody was counted as rate limited")
	}
}

// scrape reads the metrics of a role as Prometheus does.
func scrape(t *testing.T, role string) (string, map[string]*dto.MetricFamily) {
	t.Helper()
	status, text, err := shared.get(role, "/metrics", shared.token)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %v", role, status, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return text, families
}

// The page lists all metrics of ours, and those of libraries that alerts and dashboard use.
func TestMetrics_Documented(t *testing.T) {
	want, got := map[string]documented.Metric{}, map[string]documented.Metric{}
	for _, metric := range documented.Metrics(t) {
		want[metric.Name] = metric
	}
	for _, role := range roles() {
		_, families := scrape(t, role)
		for name, family := range families {
			metric := documented.Metric{Name: name, Kind: strings.ToLower(family.GetType().String()), Roles: role, Labels: labelNames(family)}
			if _, listed := want[name]; !listed && !metric.Own() {
				continue
			}
			if before, twice := got[name]; twice {
				metric.Roles = before.Roles + ", " + role
			}
			got[name] = metric
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("metrics (-docs/reference/metrics.md +served):\n%s", diff)
	}
}

func labelNames(family *dto.MetricFamily) []string {
	with := map[string]bool{}
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			with[label.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(with))
}

var reasonRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

// The page explains the reasons of a 401, and no others.
func TestUnauthorizedPage_Reasons(t *testing.T) {
	const page = "docs/unauthorized.md"
	want, got := map[string]bool{}, map[string]bool{}
	for _, cells := range reasonRow.FindAllStringSubmatch(repository.Read(t, page), -1) {
		want[cells[1]] = true
	}
	_, families := scrape(t, apiserverRole)
	for _, metric := range families["merchant_operator_http_unauthorized_total"].GetMetric() {
		got[metric.GetLabel()[0].GetValue()] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons of a 401 (-%s +served):\n%s", page, diff)
	}
}

// An account that Kubernetes knows and that has no right to the metrics.
func stranger(t *testing.T) (account *corev1.ServiceAccount, token string) {
	t.Helper()
	account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", GenerateName: "stranger-"}}
	if err := shared.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := shared.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return account, request.Status.Token
}

func TestMetrics_Authorization(t *testing.T) {
	_, token := stranger(t)
	for _, role := range roles() {
		for _, test := range []struct {
			what, path, token string
			want              int
		}{
			{"the reader's token", "/metrics", shared.token, http.StatusOK},
			{"no token", "/metrics", "", http.StatusUnauthorized},
			{"a forged token", "/metrics", shared.token[:len(shared.token)-4] + "AAAA", http.StatusUnauthorized},
			{"a key of ours", "/metrics", badKey, http.StatusUnauthorized},
			{"a stranger's token", "/metrics", token, http.StatusForbidden},
			{"no token, and probes", "/healthz", "", http.StatusOK},
			{"no token, and probes", "/readyz", "", http.StatusOK},
		} {
			status, text, err := shared.get(role, test.path, test.token)
			if err != nil || status != test.want {
				t.Errorf("%s: %s with %s: %d, want %d (%v)", role, test.path, test.what, status, test.want, err)
			}
			if status != http.StatusOK && strings.Contains(text, "go_goroutines") {
				t.Errorf("%s: metrics with %s", role, test.what)
			}
		}
		inTheClear := strings.Replace(shared.ops[role], "https://", "http://", 1)
		if answer, err := http.Get(inTheClear + "/metrics"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: metrics are served in the clear: %d", role, answer.StatusCode)
			}
		}
	}
}

// Who may read the metrics may not take profiles, which slow a process down: that is a right of its own.
func TestProfiles_Authorization(t *testing.T) {
	account, token := stranger(t)
	profiler, profilersToken := stranger(t)
	name := "profilers-" + profiler.Name
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: profiler.Namespace, Name: profiler.Name}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := shared.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range roles() {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/profile?seconds=1"} {
			for _, test := range []struct {
				who, token string
				want       int
			}{
				{"nobody", "", http.StatusUnauthorized},
				{"a reader of metrics", shared.token, http.StatusForbidden},
				{account.Name, token, http.StatusForbidden},
			} {
				status, _, err := shared.get(role, path, test.token)
				if err != nil || status != test.want {
					t.Errorf("%s: %s by %s: %d, want %d (%v)", role, path, test.who, status, test.want, err)
				}
			}
		}
		// A right is not in force everywhere at once, and a denial is cached for a minute: nobody asked before.
		status, text, err := shared.get(role, "/debug/pprof/goroutine?debug=1", profilersToken)
		if err != nil || status != http.StatusOK || !strings.Contains(text, "goroutine profile:") {
			t.Errorf("%s: goroutines by who may: %d, %.80q, %v", role, status, text, err)
		}
		if status, _, err := shared.get(role, "/debug/pprof/cmdline", profilersToken); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: the command line: %d, want 404 (%v)", role, status, err)
		}
	}
}
