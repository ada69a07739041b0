package apiserver

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// noKeyHandler needs no Redis.
type noKeyHandler struct{ directory.KeyHandler }

// Connections that are kept open go on to bring requests to a replica that is not ready. One whose watch is older than overrides
// are kept may have missed a revocation for good, so it answers none of them.
func TestAReplicaWithAStaleWatchAnswersNoKey(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	gate := caller.NewGate(caller.GateOptions{
		Directory: directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: noKeyHandler{}, Now: clock.Now}),
		Reasons:   caller.NewReasons(registry), Now: clock.Now, Log: log, Registerer: registry,
	})
	reached := false
	options := web.Options{Log: log, Draining: func() bool { return false }, Answer: answer}
	handler := web.New(options, web.NewMetrics(registry), web.Routes{"/api/v1/merchant/me": {http.MethodGet: gate.WithKey(read,
		func(*web.Event, http.ResponseWriter, *http.Request, caller.Caller) error {
			reached = true
			return nil
		})}})
	ask := func() int {
		request := httptest.NewRequest(http.MethodGet, "/api/v1/merchant/me", http.NoBody)
		answered := httptest.NewRecorder()
		handler.ServeHTTP(answered, request)
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
