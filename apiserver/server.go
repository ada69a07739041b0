package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// replica is this process with its listeners.
type replica struct {
	options  Options
	redis    *store.Store
	phase    *ops.Phase
	registry *prometheus.Registry
	failed   chan error // receives what ended a listener before its time
}

// serve listens for requests until ctx ends, and drains.
func (r *replica) serve(ctx context.Context, public, internal http.Handler) error {
	log := r.options.Log
	publicServer, err := httpserver.Serve(ctx, httpserver.Port{
		Name: "public", Address: r.options.PublicAddress, MaxConnections: r.options.MaxConnections,
		Handler: public, Log: log, Registerer: r.registry,
	}, r.failed)
	if err != nil {
		return err
	}
	defer publicServer.Close()
	internalServer, err := httpserver.Serve(ctx, httpserver.Port{
		Name: "internal", Address: r.options.InternalAddress, Handler: internal, Log: log, Registerer: r.registry,
	}, r.failed)
	if err != nil {
		return err
	}
	defer internalServer.Close()

	answered := make(chan error, 1)
	go func() { answered <- r.redis.Await(ctx, log) }()
	select {
	case err := <-answered:
		if err != nil {
			return err
		}
	case err := <-r.failed:
		return err
	}
	r.phase.Set(ops.Serving)
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
	}
	r.phase.Set(ops.Draining)
	log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	return errors.Join(publicServer.Shutdown(ctx), internalServer.Shutdown(ctx))
}
