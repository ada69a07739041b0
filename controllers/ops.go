package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// opsOptions serves metrics and health on the ops port.
func opsOptions(o Options) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: o.Ops.Address}
	if o.Ops.Profiles {
		options.ExtraHandlers = map[string]http.Handler{ops.ProfilesPath: ops.Profiles()}
	}
	if !o.Ops.Secure {
		return options, nil
	}
	secured, err := httpserver.TLS(o.Ops.CertificateDir, httpserver.Options{Name: "ops", Log: o.Log, Registerer: metrics.Registry})
	if err != nil {
		return options, fmt.Errorf("--ops-cert-dir: %w", err)
	}
	options.SecureServing = true
	options.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion, config.NextProtos, config.GetCertificate = secured.MinVersion, secured.NextProtos, secured.GetCertificate
	}}
	options.FilterProvider = func(cluster *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		kube, err := kubernetes.NewForConfigAndClient(cluster, client)
		if err != nil {
			return nil, err
		}
		guard := ops.NewGuard(kube, o.Log)
		return func(_ logr.Logger, next http.Handler) (http.Handler, error) { return guard.Protect(next), nil }, nil
	}
	return options, nil
}

// addOpsHandlers adds health to the ops port: /healthz if the process runs, /readyz if the caches have synced. A
// standby is ready too, otherwise a rolling update would wait for the lease.
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
