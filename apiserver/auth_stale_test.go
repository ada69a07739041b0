package apiserver

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Connections that are kept open go on to bring requests to a replica that is not ready. One whose watch is older than overrides
// are kept may have missed a revocation for good, so it answers none of them.
func TestAReplicaWithAStaleWatchAnswersNoKey(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	a := &publicAPI{
		base:      base{log: log, metrics: newMetrics(registry)},
		directory: directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: &overrideWriter{}, Now: clock.Now}),
	}
	reached := false
	ask := func() int {
		handler := a.withKey(func(http.ResponseWriter, *http.Request, caller) error {
			reached = true
			return nil
		})
		request := httptest.NewRequest(http.MethodGet, "/api/v1/merchant/me", http.NoBody)
		answered := httptest.NewRecorder()
		if err := handler(answered, request); err != nil {
			a.respondError(answered, request, err)
		}
		if answered.Code == http.StatusServiceUnavailable && answered.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		return answered.Code
	}
	clock.SetTime(clock.Now().Add(store.OverrideLifetime - time.Second))
	if status := ask(); status != http.StatusUnauthorized {
		t.Errorf("a second before: %d", status)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if status := ask(); status != http.StatusServiceUnavailable || reached {
		t.Errorf("when overrides begin to end: %d", status)
	}
}
