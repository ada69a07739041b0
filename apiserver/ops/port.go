package ops

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/apiserver/listen"
	"github.com/merchant-operator/merchant-operator/scrape"
)

// Options of the ops port.
type Options struct {
	Address string
	// Secure serves over TLS, and metrics to those only whom Kubernetes lets get them.
	Secure bool
	// CertificateDir has tls.crt and tls.key for that; empty: the certificate is self-made.
	CertificateDir string
	// Profiles serves profiles, too: with Secure to those only whom Kubernetes lets get them.
	Profiles bool
}

// Serve serves the ops port until it is closed. What ends it before that goes to failed.
func Serve(ctx context.Context, options Options, replica Replica, registry *prometheus.Registry, kube kubernetes.Interface,
	log *slog.Logger, failed chan<- error,
) (*listen.Server, error) {
	port := listen.Port{Name: "ops", Address: options.Address, Log: log, Registerer: registry}
	if options.Secure {
		var err error
		if port.TLS, err = scrape.TLS(options.CertificateDir); err != nil {
			return nil, err
		}
		replica.Readers = scrape.NewGuard(kube, log)
	}
	replica.Profiles = options.Profiles
	port.Handler = NewHandler(ctx, replica, registry, log)
	return listen.Serve(ctx, port, failed)
}
