package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func TestChartIsOfTheVersion(t *testing.T) {
	source := filepath.Join("..", "..", "charts", "merchant-operator")
	when := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	path, err := packageChart(source, "1.2.3-rc.1", t.TempDir(), when)
	if err != nil {
		t.Fatal(err)
	}
	if want := "merchant-operator-1.2.3-rc.1.tgz"; filepath.Base(path) != want {
		t.Errorf("it is called %s, want %s", filepath.Base(path), want)
	}

	chart, err := loader.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if chart.Metadata.Version != "1.2.3-rc.1" || chart.Metadata.AppVersion != "1.2.3-rc.1" {
		t.Errorf("version %s, appVersion %s, want 1.2.3-rc.1 of both", chart.Metadata.Version, chart.Metadata.AppVersion)
	}
	values, err := chartutil.ToRenderValues(chart, nil, chartutil.ReleaseOptions{Name: "x", Namespace: "y"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := engine.Render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	const image = "ghcr.io/merchant-operator/merchant-operator:1.2.3-rc.1"
	for _, role := range []string{"operator", "apiserver", "dispatcher"} {
		if text := manifests["merchant-operator/templates/"+role+"/deployment.yaml"]; !strings.Contains(text, image) {
			t.Errorf("the %s does not run %s:\n%s", role, image, text)
		}
	}

	again, err := packageChart(source, "1.2.3-rc.1", t.TempDir(), when)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, path), read(t, again)) {
		t.Error("the same chart packaged twice is not the same archive")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
