package monitoring

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/observability/documented"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what is looked at of Grafana's format.
type dashboard struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(repository.Read(t, "config", "prometheus", "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboard_QueriesExistingSeries(t *testing.T) {
	series := known(t)
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%s: a panel needs a query and a description", p.Title)
		}
		for _, target := range p.Targets {
			assertAnswerable(t, p.Title, target.Expr, series)
		}
	}
}

// What one can be interested in enough to count it, one wants to see.
func TestDashboard_ShowsEveryMetric(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`merchant_operator_[a-z_]+`).FindAllString(target.Expr, -1) {
				shown[regexp.MustCompile(`_(bucket|count)$`).ReplaceAllString(name, "")] = true
			}
		}
	}
	for _, metric := range documented.Metrics(t) {
		if metric.Own() && !shown[metric.Name] {
			t.Errorf("no panel shows %s", metric.Name)
		}
	}
}

func TestDashboard_Layout(t *testing.T) {
	d := readDashboard(t)
	var rows []string
	var ids []int
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		ids = append(ids, p.ID)
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, overlaps := taken[at]; overlaps || at[0] >= 24 {
					t.Fatalf("%s lies on %s, or beside the screen", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
	if diff := cmp.Diff([]string{"API", "Keys", "Webhooks", "Console", "Operator"}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(d.Panels) {
		t.Error("two panels have one id")
	}
	var variables []string
	for _, variable := range d.Templating.List {
		variables = append(variables, variable.Name)
	}
	if diff := cmp.Diff([]string{"datasource", "namespace"}, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

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
