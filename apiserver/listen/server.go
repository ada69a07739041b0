package listen

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

// Server is one listener and what it serves.
type Server struct {
	name string
	http *http.Server
}

// Serve binds the address and serves until Shutdown or Close. What ends the listener before that goes
// to failed, which must have room for it.
func Serve(ctx context.Context, log *slog.Logger, name, address string, handler http.Handler, failed chan<- error) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", name, err)
	}
	s := &Server{name, &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * gets our 404, in our shape
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	go func() {
		if err := s.http.Serve(shapedListener{listener}); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s requests: %w", name, err)
		}
	}()
	log.Info("listening", "for", name, "address", listener.Addr().String())
	return s, nil
}

// Shutdown stops listening and waits for the requests under way. Those that are still under way when
// ctx ends are cut off, and that is the error.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("finish %s requests: %w", s.name, err), s.http.Close())
	}
	return nil
}

// Close stops listening at once.
func (s *Server) Close() { _ = s.http.Close() }
