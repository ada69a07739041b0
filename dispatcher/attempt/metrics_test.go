package attempt

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Each reason of a deferral is counted from 0 on, or rate() would miss its first one.
func TestMetrics_Deferrals(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "merchant_operator_webhook_deferrals_total" {
				counted[metric.GetLabel()[0].GetValue()] = true
			}
		}
	}
	for _, reason := range []string{
		"busy", "breaker", "stopping", "endpoint_changed", "no_secret", "unknown_merchant", "merchant_decode_error", "webhook_removed",
		"endpoint_decode_error", "unsupported_event", "frozen_watch",
	} {
		if !counted[reason] {
			t.Errorf("there is no count of %s", reason)
		}
	}
}
