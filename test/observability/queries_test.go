package observability

import (
	"maps"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// targetLabels are those that the scrape adds to every series.
var targetLabels = []string{"namespace", "pod", "job", "instance", "service", "container", "endpoint"}

// known are the series of all roles, with the labels each may have.
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
	for _, role := range roles() {
		_, families := scrape(t, role)
		for name, family := range families {
			with := labelsOf(family)
			switch family.GetType() {
			case dto.MetricType_HISTOGRAM:
				add(name+"_bucket", append(with, "le")...)
				add(name+"_count", with...)
				add(name+"_sum", with...)
			default:
				add(name, with...)
			}
		}
	}
	return series
}

func labelsOf(family *dto.MetricFamily) []string {
	with := map[string]bool{}
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			with[label.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(with))
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
