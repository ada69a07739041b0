package controllers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// opsOptions serve the metrics on the ops port; health is served by the same server.
func opsOptions(o Options) metricsserver.Options {
	return metricsserver.Options{BindAddress: o.OpsAddress}
}

// addOpsHandlers adds health to the ops port: /healthz says that the process serves, /readyz that it
// sees the cluster. A standby is ready too, or a rolling update would wait for the lease.
func addOpsHandlers(mgr manager.Manager, delivered cache.Cache) error {
	ready := map[string]healthz.Checker{
		"cache":     synced(mgr.GetCache()),
		"delivered": synced(delivered),
	}
	return errors.Join(
		mgr.AddMetricsServerExtraHandler("/healthz", http.StripPrefix("/healthz", &healthz.Handler{})),
		mgr.AddMetricsServerExtraHandler("/readyz", http.StripPrefix("/readyz", &healthz.Handler{Checks: ready})),
	)
}

var errNotSynced = errors.New("the cache has not synced yet")

func synced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	}
}
