package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const operationErrors = "merchant_operator_redis_operation_errors_total"

func TestOperationsAreCounted(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer = registry })
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	for range 2 {
		_, _, err := s.Session(t.Context(), asks, created.ID)
		must(t, err)
	}
	if got := operationCounts(t, registry); got["create"] != 1 || got["read"] != 2 || len(got) != 2 {
		t.Errorf("counted %v, want one create and two reads", got)
	}
	if n, err := testutil.GatherAndCount(registry, operationErrors); err != nil || n != 0 {
		t.Errorf("%d errors of operations that went well, %v", n, err)
	}
}

func TestOperationsThatFailAreCountedByCause(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer = registry })
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session

	hungUp, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, _, err := s.Session(hungUp, asks, created.ID); err == nil {
		t.Error("a caller who is gone got an answer")
	}
	must(t, client(t, server).Set(t.Context(), bucketTag(asks.MerchantID)+"session:"+created.ID.String(), "not a hash", 0).Err())
	if _, _, err := s.Session(t.Context(), asks, created.ID); err == nil {
		t.Error("a session that cannot be read was read")
	}
	server.Stop()
	if _, err := s.Admit(t.Context(), asks); err == nil {
		t.Error("admitted without Redis")
	}
	want := `
# HELP merchant_operator_redis_operation_errors_total Operations that Redis did not answer as it should, by cause: queue, timeout, connection, answer, replicas or cancelled.
# TYPE merchant_operator_redis_operation_errors_total counter
merchant_operator_redis_operation_errors_total{cause="answer",operation="read"} 1
merchant_operator_redis_operation_errors_total{cause="cancelled",operation="read"} 1
merchant_operator_redis_operation_errors_total{cause="connection",operation="admit"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), operationErrors); err != nil {
		t.Error(err)
	}
}

func TestAnOperationThatTakesTooLongIsATimeout(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer, o.Timeout = registry, 0 })
	server.Pause()
	defer server.Resume()
	if _, err := s.Admit(t.Context(), merchant()); err == nil {
		t.Error("admitted by a frozen Redis")
	}
	want := `
# HELP merchant_operator_redis_operation_errors_total Operations that Redis did not answer as it should, by cause: queue, timeout, connection, answer, replicas or cancelled.
# TYPE merchant_operator_redis_operation_errors_total counter
merchant_operator_redis_operation_errors_total{cause="timeout",operation="admit"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), operationErrors); err != nil {
		t.Error(err)
	}
}

// operationCounts returns how often each was done.
func operationCounts(t *testing.T, registry *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "merchant_operator_redis_operation_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counts[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
		}
	}
	return counts
}
