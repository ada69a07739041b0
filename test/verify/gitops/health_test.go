// Package gitops checks that the tools which roll out manifests read the status of Merchants and
// ApiKeys as it is meant: Argo CD through its Lua health check, Flux and kubectl through kstatus.
package gitops

import (
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func condition(kind string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: kind + " is " + string(status)}
}

// cases are the statuses an object goes through, and what each tool must make of them.
var cases = map[string]struct {
	observed   int64
	conditions []metav1.Condition
	argo       string
	flux       kstatus.Status
}{
	"just created": {observed: -1, argo: "Progressing", flux: kstatus.InProgressStatus},
	"published": {
		observed:   2,
		conditions: []metav1.Condition{condition(v1alpha1.ReadyCondition, metav1.ConditionTrue)},
		argo:       "Healthy", flux: kstatus.CurrentStatus,
	},
	"published, but edited since": {
		observed:   1,
		conditions: []metav1.Condition{condition(v1alpha1.ReadyCondition, metav1.ConditionTrue)},
		argo:       "Progressing", flux: kstatus.InProgressStatus,
	},
	"waits for its merchant": {
		observed: 2,
		conditions: []metav1.Condition{
			condition(v1alpha1.ReadyCondition, metav1.ConditionFalse),
			condition(v1alpha1.ReconcilingCondition, metav1.ConditionTrue),
		},
		argo: "Progressing", flux: kstatus.InProgressStatus,
	},
	"cannot go on": {
		observed: 2,
		conditions: []metav1.Condition{
			condition(v1alpha1.ReadyCondition, metav1.ConditionFalse),
			condition(v1alpha1.StalledCondition, metav1.ConditionTrue),
		},
		argo: "Degraded", flux: kstatus.FailedStatus,
	},
	"expired": {
		observed: 2, conditions: refused(v1alpha1.ReasonExpired), argo: "Degraded", flux: kstatus.FailedStatus,
	},
	"disabled in Git": {
		observed: 2, conditions: refused(v1alpha1.ReasonDisabled), argo: "Healthy", flux: kstatus.FailedStatus,
	},
	"its merchant suspended in Git": {
		observed: 2, conditions: refused(v1alpha1.ReasonMerchantSuspended), argo: "Healthy", flux: kstatus.FailedStatus,
	},
	"its merchant closed in Git": {
		observed: 2, conditions: refused(v1alpha1.ReasonMerchantClosed), argo: "Healthy", flux: kstatus.FailedStatus,
	},
}

// refused are the conditions of a key that does not work.
func refused(reason string) []metav1.Condition {
	ready, stalled := condition(v1alpha1.ReadyCondition, metav1.ConditionFalse), condition(v1alpha1.StalledCondition, metav1.ConditionTrue)
	ready.Reason, stalled.Reason = reason, reason
	return []metav1.Condition{ready, stalled}
}

func object(t *testing.T, observed int64, conditions []metav1.Condition) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.ApiKey{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey"},
		ObjectMeta: metav1.ObjectMeta{Name: "till", Namespace: "shops", Generation: 2},
		Status:     v1alpha1.ApiKeyStatus{ObservedGeneration: observed, Conditions: conditions},
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestKstatus(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := kstatus.Compute(&unstructured.Unstructured{Object: object(t, c.observed, c.conditions)})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != c.flux {
				t.Errorf("kstatus says %s (%s), want %s", got.Status, got.Message, c.flux)
			}
		})
	}
}

func TestArgoCD(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state := lua.NewState()
			defer state.Close()
			state.SetGlobal("obj", luaValue(state, object(t, c.observed, c.conditions)))
			if err := state.DoFile(repository.Path("config", "argocd", "health.lua")); err != nil {
				t.Fatal(err)
			}
			health, ok := state.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatal("the health check returned no table")
			}
			if got := health.RawGetString("status").String(); got != c.argo {
				t.Errorf("Argo CD says %s, want %s", got, c.argo)
			}
		})
	}
}

func TestArgoCD_ConfigMapForBothKinds(t *testing.T) {
	script := repository.Read(t, "config", "argocd", "health.lua")
	manifest := []byte(repository.Read(t, "config", "argocd", "argocd-cm.yaml"))
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict(manifest, &config); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Merchant", "ApiKey"} {
		key := "resource.customizations.health." + v1alpha1.SchemeGroupVersion.Group + "_" + kind
		if config.Data[key] != script {
			t.Errorf("%s differs from health.lua", key)
		}
	}
}

// luaValue hands an object to Lua the way Argo CD does.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, entry := range v {
			table.RawSetString(key, luaValue(state, entry))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, entry := range v {
			table.Append(luaValue(state, entry))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	default:
		return lua.LNil
	}
}

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
