package chart

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// manifests are what Helm would send, by template.
type manifests map[string]string

// load reads the chart once for all tests.
var load = sync.OnceValues(func() (*helm.Chart, error) { return loader.Load(repository.Path("charts", "merchant-operator")) })

// tryRender renders the chart with values in YAML, of which later ones win, as `helm install merchant-operator -n
// merchant-operator-system` does with files.
func tryRender(t *testing.T, texts ...string) (manifests, error) {
	t.Helper()
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	merged := map[string]any{}
	for _, text := range texts {
		values, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatalf("%v in these values:\n%s", err, text)
		}
		merged = chartutil.MergeTables(values, merged)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}
	options := chartutil.ReleaseOptions{Name: release, Namespace: system, Revision: 1, IsInstall: true}
	full, err := chartutil.ToRenderValues(chart, merged, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, full)
}

func render(t *testing.T, values ...string) manifests {
	t.Helper()
	out, err := tryRender(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stream is all of it in one text, without the notes.
func (m manifests) stream() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if path.Ext(name) == ".yaml" {
			parts = append(parts, m[name])
		}
	}
	return strings.Join(parts, "\n---\n")
}

// objects are those of a text of several documents. The key is Kind/name, and @namespace if that is not the release's.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var content map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(content) == 0 {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		key := object.GetKind() + "/" + object.GetName()
		if namespace := object.GetNamespace(); namespace != "" && namespace != system {
			key += "@" + namespace
		}
		if _, twice := out[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		out[key] = object
	}
	return out
}

// one returns the object of a key.
func one(t *testing.T, all map[string]*unstructured.Unstructured, key string) *unstructured.Unstructured {
	t.Helper()
	object, found := all[key]
	if !found {
		t.Fatalf("there is no %s, only %v", key, slices.Sorted(maps.Keys(all)))
	}
	return object
}

// get decodes the object of a key; a field that its type does not have fails t.
func get[T any](t *testing.T, all map[string]*unstructured.Unstructured, key string) T {
	t.Helper()
	var out T
	object := one(t, all, key)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return out
}
