package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/listen"
	"github.com/merchant-operator/merchant-operator/apiserver/ops"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// replica is this process with its listeners.
type replica struct {
	options Options
	redis   *store.Store
	phase   *ops.Phase
	failed  chan error // receives what ended a listener before its time
}

func (r *replica) listen(ctx context.Context, name, address string, handler http.Handler) (*listen.Server, error) {
	return listen.Serve(ctx, listen.Port{Name: name, Address: address, Handler: handler, Log: r.options.Log}, r.failed)
}

// serve listens for requests until ctx ends, and drains.
func (r *replica) serve(ctx context.Context, public, internal http.Handler) error {
	publicServer, err := r.listen(ctx, "public", r.options.PublicAddress, public)
	if err != nil {
		return err
	}
	defer publicServer.Close()
	internalServer, err := r.listen(ctx, "internal", r.options.InternalAddress, internal)
	if err != nil {
		return err
	}
	defer internalServer.Close()

	answered := make(chan error, 1)
	go func() { answered <- ops.AwaitRedis(ctx, r.redis, r.options.Log) }()
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
	r.options.Log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	return errors.Join(publicServer.Shutdown(ctx), internalServer.Shutdown(ctx))
}
