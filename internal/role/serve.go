package role

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// Service is what a role does. It has listeners or work.
type Service struct {
	// Age is the age of what the role watches; at MaxAge the role is not ready. Without Age it is always fresh.
	Age    func() time.Duration
	MaxAge time.Duration
	// Reviews say who may read metrics. Default: Role.Kube.
	Reviews kubernetes.Interface
	// Background runs from the start until the role has drained.
	Background []func(context.Context)
	// Sync returns when what the role watches has been read, or with ctx.
	Sync func(context.Context) error

	// Listeners open after that. In a drain they serve for Options.DrainDelay more, then finish the requests in progress.
	Listeners []httpserver.Options
	// Finish ends what the listeners no longer know, with ctx at the latest; nil: nothing.
	Finish func(context.Context)

	// Work begins when the role is ready. It drains when ctx ends, then returns.
	Work func(context.Context) error
}

// Serve runs the service until ctx ends, then drains. It returns nil after a clean drain or if ctx ends before the start was complete, and
// an error if it could not start, if a listener failed, or if something in progress had to be aborted.
func (r *Role) Serve(ctx context.Context, s Service) error {
	const opsListener = 1
	failed := make(chan error, opsListener+len(s.Listeners)) // errors of listeners that ended too early
	opsServer, err := r.serveOps(ctx, s, failed)
	if err != nil {
		return err
	}
	defer opsServer.Close() // answers probes to the end
	stopBackground := background(ctx, s.Background)
	defer stopBackground()
	if err := waitFor(failed, func() error { return s.Sync(ctx) }); err != nil || ctx.Err() != nil {
		return err
	}
	opened, err := listen(ctx, s.Listeners, failed)
	defer opened.close()
	if err != nil {
		return err
	}
	if err := waitFor(failed, func() error { return r.Redis.Await(ctx, r.options.Log) }); err != nil {
		return err
	}
	r.phase.Set(ops.Serving)
	if s.Work != nil {
		return r.work(ctx, s.Work, failed)
	}
	return r.serveRequests(ctx, opened, s.Finish, failed)
}

func (r *Role) serveOps(ctx context.Context, s Service, failed chan<- error) (*httpserver.Server, error) {
	health := ops.Health{Phase: r.phase, Redis: r.Redis, Age: s.Age, MaxAge: s.MaxAge}
	if s.Age == nil {
		health.Age, health.MaxAge = func() time.Duration { return 0 }, time.Hour
	}
	reviews := s.Reviews
	if reviews == nil {
		reviews = r.Kube
	}
	return ops.Serve(ctx, r.options.Ops, health, r.Registry, reviews, r.options.Log, failed)
}

type servers []*httpserver.Server

// listen returns those that it has opened, also with an error.
func listen(ctx context.Context, listeners []httpserver.Options, failed chan<- error) (opened servers, err error) {
	for _, listener := range listeners {
		server, err := httpserver.Serve(ctx, listener, failed)
		if err != nil {
			return opened, err
		}
		opened = append(opened, server)
	}
	return opened, nil
}

func (s servers) close() {
	for _, server := range s {
		server.Close()
	}
}

func (s servers) shutdown(ctx context.Context) error {
	var errs []error
	for _, server := range s {
		errs = append(errs, server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// serveRequests waits for the end of ctx and drains the servers. A listener that fails ends it at once.
func (r *Role) serveRequests(ctx context.Context, opened servers, finish func(context.Context), failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	r.drain()
	r.options.Log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	err := opened.shutdown(ctx)
	if finish != nil {
		finish(ctx)
	}
	return err
}

// work runs until ctx ends or a listener fails, and lets it drain.
func (r *Role) work(ctx context.Context, work func(context.Context) error, failed <-chan error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() {
		r.drain()
		r.options.Log.Info("draining")
	})
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	select {
	case err := <-ended:
		return err
	case err := <-failed:
		stop()
		return errors.Join(err, <-ended)
	}
}

func (r *Role) drain() {
	r.phase.Set(ops.Draining)
	close(r.draining)
}

// Closed returns a Sync that waits for a channel.
func Closed(synced <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-synced:
		case <-ctx.Done():
		}
		return nil
	}
}

// background runs the functions until stop is called. They outlive ctx, because a role still works while it drains.
func background(ctx context.Context, functions []func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, function := range functions {
		running.Go(func() { function(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// waitFor returns the result of wait, or the error of a listener that fails before. wait must end with its own context.
func waitFor(failed <-chan error, wait func() error) error {
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		return err
	case err := <-failed:
		return err
	}
}
