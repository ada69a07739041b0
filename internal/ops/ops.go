// Package ops serves the ops port of a role: health, readiness, metrics and profiles. Metrics and profiles may require
// Kubernetes authentication and authorization, over TLS.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// Options of the ops server. They are the same in every role.
type Options struct {
	// Address serves /healthz, /readyz and /metrics. Default :9090.
	Address string
	// Secure serves over TLS, and requires Kubernetes authentication and authorization for /metrics. Default: plain HTTP, for
	// everybody.
	Secure bool
	// CertificateDir has tls.crt and tls.key for that; empty: a self-signed certificate.
	CertificateDir string
	// Profiles serves profiles below /debug/pprof/. It needs Secure, which then requires authorization for that path too, or a
	// loopback address. Default: off.
	Profiles bool
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options { return Options{Address: ":9090"} }

// Validate names the flag of an invalid option.
func (o Options) Validate() error {
	switch {
	case o.CertificateDir != "" && !o.Secure:
		return errors.New("--ops-cert-dir needs --secure-metrics")
	case o.Profiles:
		return CheckProfiles(o.Secure, o.Address)
	}
	return httpserver.CheckAddress("--ops-address", o.Address)
}

// Serve serves the ops port until it is closed. If its listener ends before that, the error goes to failed.
func Serve(ctx context.Context, options Options, health Health, registry *prometheus.Registry, kube kubernetes.Interface,
	log *slog.Logger, failed chan<- error,
) (*httpserver.Server, error) {
	server := httpserver.Options{Name: "ops", Address: options.Address, Log: log, Registerer: registry}
	if options.Secure {
		var err error
		if server.TLS, err = httpserver.TLS(options.CertificateDir, server); err != nil {
			return nil, fmt.Errorf("--ops-cert-dir: %w", err)
		}
		health.Guard = NewGuard(kube, log)
	}
	health.Profiles = options.Profiles
	server.Handler = NewHandler(health, registry, log)
	return httpserver.Serve(ctx, server, failed)
}
