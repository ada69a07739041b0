// Package gitops checks that the tools which roll out manifests read the status of Merchants and
// ApiKeys as it is meant: Argo CD through its Lua health check, Flux and kubectl through kstatus.
package gitops

import (
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
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
			if got := argoHealth(t, object(t, c.observed, c.conditions)); got != c.argo {
				t.Errorf("Argo CD says %s, want %s", got, c.argo)
			}
		})
	}
}

// argoHealth returns the status that the health check gives to an object.
func argoHealth(t *testing.T, object map[string]any) string {
	t.Helper()
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoFile(repository.Path("config", "argocd", "health.lua")); err != nil {
		t.Fatal(err)
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatal("the health check returned no table")
	}
	return health.RawGetString("status").String()
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

// documented are the rows of the tables of Ready in the page of conditions: what Ready is, and the condition beside it.
func documented(t *testing.T) map[string][]metav1.Condition {
	t.Helper()
	rows := map[string][]metav1.Condition{}
	for line := range strings.Lines(repository.Read(t, "docs", "reference", "conditions.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 4 {
			continue
		}
		status, beside := metav1.ConditionStatus(strings.TrimSpace(cells[0])), strings.TrimSpace(cells[1])
		abnormal := strings.HasPrefix(beside, "`Reconciling`") || strings.HasPrefix(beside, "`Stalled`")
		if !abnormal && (status != metav1.ConditionTrue || beside != "") { // of another table
			continue
		}
		if status == metav1.ConditionTrue && abnormal {
			t.Errorf("Ready=True has a condition beside it: %s", line)
		}
		conditions := []metav1.Condition{condition(v1alpha1.ReadyCondition, status)}
		for _, kind := range []string{v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition} {
			if strings.HasPrefix(beside, "`"+kind+"`") {
				conditions = append(conditions, condition(kind, metav1.ConditionTrue))
			}
		}
		if usable := strings.TrimSpace(cells[2]); usable == string(metav1.ConditionFalse) {
			conditions = append(conditions, condition(v1alpha1.UsableCondition, metav1.ConditionFalse))
		}
		rows[strings.TrimSpace(line)] = conditions
	}
	return rows
}

// kstatus and Argo CD read every documented state of an object as the page says: a key that its spec refuses is Current.
func TestConditions_EveryDocumentedRow(t *testing.T) {
	rows := documented(t)
	if len(rows) < 20 {
		t.Fatalf("%d rows in the page of conditions", len(rows))
	}
	for row, conditions := range rows {
		want, argo := kstatus.CurrentStatus, "Healthy"
		for _, c := range conditions {
			switch c.Type {
			case v1alpha1.ReconcilingCondition:
				want, argo = kstatus.InProgressStatus, "Progressing"
			case v1alpha1.StalledCondition:
				want, argo = kstatus.FailedStatus, "Degraded"
			}
		}
		got, err := kstatus.Compute(&unstructured.Unstructured{Object: object(t, 2, conditions)})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != want {
			t.Errorf("kstatus says %s (%s), want %s of %s", got.Status, got.Message, want, row)
		}
		if got := argoHealth(t, object(t, 2, conditions)); got != argo {
			t.Errorf("Argo CD says %s, want %s of %s", got, argo, row)
		}
	}
}
