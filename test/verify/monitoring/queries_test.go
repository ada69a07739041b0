package monitoring

import (
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/observability/documented"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// targetLabels are those that the scrape adds to every series.
var targetLabels = []string{"namespace", "pod", "job", "instance", "service", "container", "endpoint"}

// known are the series of docs/reference/metrics.md, with the labels each may have.
func known(t *testing.T) map[string]map[string]bool {
	t.Helper()
	series := map[string]map[string]bool{}
	add := func(name string, of ...string) {
		if series[name] == nil {
			series[name] = map[string]bool{model.MetricNameLabel: true}
		}
		for _, label := range slices.Concat(of, targetLabels) {
			series[name][label] = true
		}
	}
	for _, metric := range documented.Metrics(t) {
		switch metric.Kind {
		case "histogram":
			add(metric.Name+"_bucket", append(metric.Labels, "le")...)
			add(metric.Name+"_count", metric.Labels...)
			add(metric.Name+"_sum", metric.Labels...)
		default:
			add(metric.Name, metric.Labels...)
		}
	}
	return series
}

// assertAnswerable fails t if Prometheus would not understand the query, or would find nothing because it asks for
// a metric or a label that no role has.
func assertAnswerable(t *testing.T, where, query string, series map[string]map[string]bool) {
	t.Helper()
	query = strings.NewReplacer("$__rate_interval", "5m", "$namespace", "payments").Replace(query)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			with := series[n.Name]
			if with == nil {
				t.Errorf("%s: no role has the metric %s", where, n.Name)
				return nil
			}
			for _, matcher := range n.LabelMatchers {
				if !with[matcher.Name] {
					t.Errorf("%s: %s has no label %s", where, n.Name, matcher.Name)
				}
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !anyHas(selectedBy(n.Expr), series, label) {
					t.Errorf("%s: nothing in %s has the label %s", where, n.Expr, label)
				}
			}
		}
		return nil
	})
}

// selectedBy returns the metrics that a part of a query asks for.
func selectedBy(expr parser.Expr) []string {
	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

func anyHas(names []string, series map[string]map[string]bool, label string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return series[name][label] })
}
