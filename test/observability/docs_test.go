package observability

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	dto "github.com/prometheus/client_model/go"

	"github.com/merchant-operator/merchant-operator/test/observability/documented"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The page lists all metrics of ours, and those of libraries that alerts and dashboard use.
func TestThePageListsTheMetricsThatThereAre(t *testing.T) {
	want, got := map[string]documented.Metric{}, map[string]documented.Metric{}
	for _, metric := range documented.Metrics(t) {
		want[metric.Name] = metric
	}
	for _, role := range roles() {
		_, families := scrape(t, role)
		for name, family := range families {
			metric := documented.Metric{Name: name, Kind: strings.ToLower(family.GetType().String()), Roles: role, Labels: labelsOf(family)}
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

func labelsOf(family *dto.MetricFamily) []string {
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
