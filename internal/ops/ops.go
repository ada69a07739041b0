// Package ops serves the ops port of a role: health, readiness, metrics and profiles. Metrics and profiles may require
// Kubernetes authentication and authorization, over TLS.
package ops

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// Options of the ops port. They are the same in every role.
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

// Validate says which option is wrong, by its flag.
func (o Options) Validate() error {
	switch {
	case o.Address == "":
		return errors.New("set --ops-address")
	case o.CertificateDir != "" && !o.Secure:
		return errors.New("--ops-cert-dir needs --secure-metrics")
	case o.Profiles:
		return CheckProfiles(o.Secure, o.Address)
	}
	return nil
}

// Serve serves the ops port until it is closed. What ends it before that goes to failed.
func Serve(ctx context.Context, options Options, replica Replica, registry *prometheus.Registry, kube kubernetes.Interface,
	log *slog.Logger, failed chan<- error,
) (*httpserver.Server, error) {
	port := httpserver.Port{Name: "ops", Address: options.Address, Log: log, Registerer: registry}
	if options.Secure {
		var err error
		if port.TLS, err = httpserver.TLS(options.CertificateDir); err != nil {
			return nil, err
		}
		replica.Readers = NewGuard(kube, log)
	}
	replica.Profiles = options.Profiles
	port.Handler = NewHandler(ctx, replica, registry, log)
	return httpserver.Serve(ctx, port, failed)
}
