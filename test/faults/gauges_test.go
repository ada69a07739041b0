//go:build faults

package faults

import (
	"net/http"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// What a process shows of itself.
const (
	goroutines = "go_goroutines"
	resident   = "process_resident_memory_bytes"
	openFiles  = "process_open_fds"
	inFlight   = "merchant_operator_http_requests_in_flight"
	// connections are of the public listener.
	connections = "merchant_operator_http_connections"
)

// What a process may take more than before, for what its callers hold and for what is freed late.
const (
	spareGoroutines = 150
	spareMemory     = 96 << 20
)

// metricsOf are those of the process at an ops port.
func metricsOf(t testing.TB, ops string) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// gauges reads what the process at an ops port shows.
func gauges(t testing.TB, ops string) map[string]float64 {
	t.Helper()
	families := metricsOf(t, ops)
	shown := map[string]float64{}
	for _, name := range []string{goroutines, resident, openFiles} {
		shown[name] = families[name].GetMetric()[0].GetGauge().GetValue()
	}
	if api := families[inFlight].GetMetric(); len(api) > 0 {
		shown[inFlight] = api[0].GetGauge().GetValue()
	}
	for _, listener := range families[connections].GetMetric() {
		if listener.GetLabel()[0].GetValue() == "public" {
			shown[connections] = listener.GetGauge().GetValue()
		}
	}
	return shown
}

// checkFlat says whether a process has grown: during a fault within what its callers explain, and after it not at all.
func checkFlat(t *testing.T, ops string, before, during map[string]float64) {
	t.Helper()
	if grown := during[goroutines] - before[goroutines]; grown > spareGoroutines {
		t.Errorf("%.0f goroutines more during the fault", grown)
	}
	if grown := during[resident] - before[resident]; grown > spareMemory {
		t.Errorf("%.0f MB more during the fault", grown/1e6)
	}
	eventually(t, "goroutines and connections are as many as before", func() bool {
		now := gauges(t, ops)
		return now[goroutines] < before[goroutines]+20 && now[openFiles] < before[openFiles]+20
	})
}
