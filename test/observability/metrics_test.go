package observability

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func roles() []string { return []string{operatorRole, apiserverRole, dispatcherRole, consoleRole} }

// own reports whether a metric is one of the product's own.
func own(name string) bool { return strings.HasPrefix(name, "merchant_operator_") }

func TestMetricsKeepTheConventions(t *testing.T) {
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
// merchant chose, or with an id in it, would grow without bounds and tell who trades.
var bounded = map[string]*regexp.Regexp{
	"method":    regexp.MustCompile(`^(GET|HEAD|POST|OPTIONS|other)$`),
	"route":     regexp.MustCompile(`^(/[a-z0-9.]+|/\{(id|keyID)\})*$`),
	"code":      regexp.MustCompile(`^[1-5][0-9]{2}$`),
	"action":    regexp.MustCompile(`^[A-Z][A-Za-z]{4,20}$`),
	"status":    regexp.MustCompile(`^[1-5][0-9]{2}$`),
	"reason":    regexp.MustCompile(`^([a-z_]{2,24}[0-9x]*|[A-Z][A-Za-z]{4,20})$`),
	"mode":      regexp.MustCompile(`^(enforce|report|live|test)$`),
	"limit":     regexp.MustCompile(`^(merchant|address|rotations|account|replica)$`),
	"source":    regexp.MustCompile(`^(message|expiry|reread)$`),
	"outcome":   regexp.MustCompile(`^(COMPLETED|FAILED|delivered|dropped|webhook_removed|dead|expired|sent|refused)$`),
	"result":    regexp.MustCompile(`^[a-z_]{2,20}[0-9x]*$`),
	"age":       regexp.MustCompile(`^[0-9]+h$`),
	"use":       regexp.MustCompile(`^(used|unknown)$`),
	"cause":     regexp.MustCompile(`^(Initial|Trigger|Schedule|API|Recovery|gone|failing|timeout|connection|answer|cancelled)$`),
	"kind":      regexp.MustCompile(`^(key|merchant|webhook|tombstone|digest|Merchant|ApiKey|session\.[a-z_]+|key\.rotated|webhook\.test|)$`),
	"state":     regexp.MustCompile(`^(ready|reconciling|stalled|inactive|unknown|wanted|active)$`),
	"listener":  regexp.MustCompile(`^(public|internal|ops|console)$`),
	"operation": regexp.MustCompile(`^[a-z_]{4,20}$`),
}

func TestLabelsAreBounded(t *testing.T) {
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

func TestMetricsHoldNobodysSecrets(t *testing.T) {
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
func TestMetricsCountWhatHappened(t *testing.T) {
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
