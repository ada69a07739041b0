// Package documented reads the metrics that docs/reference/metrics.md lists. Tests compare them with what the roles serve, and
// alerts and dashboard with them.
package documented

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// Metric is a row of a table of metrics.
type Metric struct {
	Name, Kind string
	Roles      string   // separated by ", "
	Labels     []string // sorted
}

// Own reports whether a metric is one of the product's own.
func (m Metric) Own() bool { return strings.HasPrefix(m.Name, "merchant_operator_") }

var (
	row    = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([a-z, ]+) \\| ([^|]*)\\|")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// Metrics returns them in the order of the page, and fails t if one is listed twice.
func Metrics(t testing.TB) []Metric {
	t.Helper()
	var metrics []Metric
	for _, cells := range row.FindAllStringSubmatch(repository.Read(t, "docs", "reference", "metrics.md"), -1) {
		metric := Metric{Name: cells[1], Kind: cells[2], Roles: cells[3]}
		for _, label := range quoted.FindAllStringSubmatch(cells[4], -1) {
			metric.Labels = append(metric.Labels, label[1])
		}
		slices.Sort(metric.Labels)
		if slices.ContainsFunc(metrics, func(other Metric) bool { return other.Name == metric.Name }) {
			t.Errorf("docs/reference/metrics.md lists %s twice", metric.Name)
		}
		metrics = append(metrics, metric)
	}
	return metrics
}
