package observability

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row is a metric in a table: of docs/observability.md, or of what a role shows.
type row struct {
	name, kind, roles string
	labels            []string
}

func TestThePageListsTheMetricsThatThereAre(t *testing.T) {
	shown := map[string]row{}
	for _, role := range roles() {
		_, families := scrape(t, role)
		for name, family := range families {
			if !own(name) {
				continue
			}
			r := row{name: name, kind: strings.ToLower(family.GetType().String()), roles: role, labels: labelsOf(family)}
			if before, twice := shown[name]; twice {
				r.roles = before.roles + ", " + role
			}
			shown[name] = r
		}
	}
	described := map[string]row{}
	for _, r := range documented(t) {
		if _, twice := described[r.name]; twice {
			t.Errorf("%s is listed twice", r.name)
		}
		described[r.name] = r
	}
	if diff := cmp.Diff(described, shown, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("metrics (-docs/observability.md +shown):\n%s", diff)
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// documented are the metrics in the table of docs/observability.md.
func documented(t *testing.T) []row {
	t.Helper()
	var rows []row
	for line := range strings.SplitSeq(page(t, "observability.md"), "\n") {
		if !strings.HasPrefix(line, "| `merchant_operator_") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		r := row{
			name:  strings.Trim(strings.TrimSpace(cells[0]), "`"),
			kind:  strings.TrimSpace(cells[1]),
			roles: strings.TrimSpace(cells[2]),
		}
		for _, label := range quoted.FindAllStringSubmatch(cells[3], -1) {
			r.labels = append(r.labels, label[1])
		}
		slices.Sort(r.labels)
		rows = append(rows, r)
	}
	return rows
}

// page returns the text of a page of docs/.
func page(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(inRepository(append([]string{"docs"}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every reason that can label a refusal is explained.
func TestThePageExplainsEveryReasonOfARefusal(t *testing.T) {
	_, families := scrape(t, apiserverRole)
	for _, metric := range families["merchant_operator_http_unauthorized_total"].GetMetric() {
		if reason := metric.GetLabel()[0].GetValue(); !strings.Contains(page(t, "observability.md"), "`"+reason+"`") {
			t.Errorf("docs/observability.md does not say what %s is", reason)
		}
	}
}
