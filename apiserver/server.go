package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of every listener. A request takes milliseconds, a rotation seconds; what takes longer is
// a client that holds a connection for nothing.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 15 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 16 << 10
)

// replica is this process with its listeners.
type replica struct {
	options Options
	phase   *phase
	failed  chan error // receives what ended a listener before its time
}

// server is one listener and what it serves.
type server struct {
	name string
	http *http.Server
}

// listen binds the address and serves until shutdown.
func (r *replica) listen(ctx context.Context, name, address string, handler http.Handler) (*server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", name, err)
	}
	s := &server{name, &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * gets our 404, in our shape
		ErrorLog:                     slog.NewLogLogger(r.options.Log.Handler(), slog.LevelDebug),
	}}
	go func() {
		if err := s.http.Serve(shapedListener{listener}); !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("serve %s requests: %w", name, err)
		}
	}()
	r.options.Log.Info("listening", "for", name, "address", listener.Addr().String())
	return s, nil
}

// shutdown stops listening and waits for the requests under way. Those that are still under way
// when ctx ends are cut off, and that is the error.
func (s *server) shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("finish %s requests: %w", s.name, err), s.http.Close())
	}
	return nil
}

// serve listens for requests until ctx ends, and drains.
func (r *replica) serve(ctx context.Context, public, internal http.Handler) error {
	publicServer, err := r.listen(ctx, "public", r.options.PublicAddress, public)
	if err != nil {
		return err
	}
	defer func() { _ = publicServer.http.Close() }()
	internalServer, err := r.listen(ctx, "internal", r.options.InternalAddress, internal)
	if err != nil {
		return err
	}
	defer func() { _ = internalServer.http.Close() }()

	r.phase.set(serving)
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
	}
	r.phase.set(draining)
	r.options.Log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	return errors.Join(publicServer.shutdown(ctx), internalServer.shutdown(ctx))
}
