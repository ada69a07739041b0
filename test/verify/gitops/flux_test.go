package gitops

import (
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// healthCheck returns the expressions of the Kustomization of docs/gitops.md, as Flux evaluates them.
func healthCheck(t *testing.T) *cel.StatusEvaluator {
	t.Helper()
	_, manifests, _ := strings.Cut(repository.Read(t, "docs", "gitops.md"), "cat >flux.yaml <<'YAML'\n")
	manifests, _, _ = strings.Cut(manifests, "YAML\n")
	documents := strings.Split(manifests, "---\n")
	var merchants struct {
		Spec struct{ HealthCheckExprs []kustomize.CustomHealthCheck }
	}
	if err := yaml.Unmarshal([]byte(documents[len(documents)-1]), &merchants); err != nil || len(merchants.Spec.HealthCheckExprs) != 1 {
		t.Fatalf("%d health checks in the page: %v", len(merchants.Spec.HealthCheckExprs), err)
	}
	evaluator, err := cel.NewStatusEvaluator(&merchants.Spec.HealthCheckExprs[0].HealthCheckExpressions)
	if err != nil {
		t.Fatal(err)
	}
	return evaluator
}

// A Kustomization accepts keys that Git disabled, as Argo CD does.
func TestHealthCheckExprs(t *testing.T) {
	check := healthCheck(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]kstatus.Status{
				"Healthy": kstatus.CurrentStatus, "Degraded": kstatus.FailedStatus, "Progressing": kstatus.InProgressStatus,
			}[c.argo]
			got, err := check.Evaluate(t.Context(), &unstructured.Unstructured{Object: object(t, c.observed, c.conditions)})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != want {
				t.Errorf("Flux says %s, want %s as Argo CD", got.Status, want)
			}
		})
	}
}
