package gitops

import (
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"sigs.k8s.io/yaml"
)

// healthCheckExprs returns the expressions that docs/reference/conditions.md has for a Flux Kustomization.
func healthCheckExprs(t *testing.T) (failed, current string) {
	t.Helper()
	_, text, _ := strings.Cut(repository.Read(t, "docs", "reference", "conditions.md"), "```yaml\nhealthCheckExprs:")
	text, _, _ = strings.Cut(text, "```")
	var checks []struct{ Failed, Current string }
	if err := yaml.Unmarshal([]byte(text), &checks); err != nil || len(checks) != 1 {
		t.Fatalf("%d health checks in the page: %v", len(checks), err)
	}
	return checks[0].Failed, checks[0].Current
}

// holds evaluates an expression as Flux does.
func holds(t *testing.T, expression string, object map[string]any) bool {
	t.Helper()
	environment, err := cel.NewEnv(cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	compiled, issues := environment.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := environment.Program(compiled)
	if err != nil {
		t.Fatal(err)
	}
	result, _, err := program.Eval(object)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return result.Value() == true
}

// Flux asks for failed before it asks for current, and for neither while the status describes an older spec.
func TestAKustomizationAcceptsKeysThatGitDisabled(t *testing.T) {
	failed, current := healthCheckExprs(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]kstatus.Status{
				"Healthy": kstatus.CurrentStatus, "Degraded": kstatus.FailedStatus, "Progressing": kstatus.InProgressStatus,
			}[c.argo]
			got, content := kstatus.InProgressStatus, object(t, c.observed, c.conditions)
			switch {
			case c.observed != 2:
			case holds(t, failed, content):
				got = kstatus.FailedStatus
			case holds(t, current, content):
				got = kstatus.CurrentStatus
			}
			if got != want {
				t.Errorf("the Kustomization's check says %s, want %s as Argo CD", got, want)
			}
		})
	}
}
