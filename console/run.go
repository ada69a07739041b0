// Package console serves the merchant console: the web pages where a merchant's own people see and refund payments, keep API keys, the
// webhook and the allowlist. People sign in at an OpenID provider; what they may do is decided by Kubernetes RBAC alone. See docs/design/console.md.
package console

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/role"
)

// Run serves the console until ctx ends, then drains. It returns nil after a clean drain, and an error if it could not start, if a
// listener failed, or if requests had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	r, err := role.Open(ctx, "console", options.Options, redis.Options{Replicas: redis.ChooseReplicas(options.SettlementReplicas, options.RedisURL)})
	if err != nil {
		return err
	}
	defer r.Close()
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler()))
	c, err := newConsole(options, r) //nolint:contextcheck // each request has its own
	if err != nil {
		return err
	}
	listener := httpserver.Options{
		Name: "console", Address: options.Address, WriteTimeout: writeTimeout, Log: options.Log, Registerer: r.Registry,
		Handler: c.handler(), //nolint:contextcheck // each request has its own
	}
	if options.CertificateDir != "" {
		if listener.TLS, err = httpserver.TLS(options.CertificateDir, listener); err != nil {
			return fmt.Errorf("--console-cert-dir: %w", err)
		}
	}
	return r.Serve(ctx, role.Service{
		Background: []func(context.Context){func(ctx context.Context) {
			if err := c.objects.Cache.Start(ctx); err != nil {
				options.Log.Error("the watch of Merchants ended", "error", err)
			}
		}},
		Sync:      func(ctx context.Context) error { return c.objects.AwaitCache(ctx) },
		Listeners: []httpserver.Options{listener},
	})
}
