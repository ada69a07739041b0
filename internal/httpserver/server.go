package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of every listener. A request takes milliseconds, a rotation seconds; what takes longer is
// a client that holds a connection for nothing.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 15 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 16 << 10
	// fewConnections are enough for a port that only the cluster reaches.
	fewConnections = 1000
)

// Server is one listener and what it serves.
type Server struct {
	name        string
	http        *http.Server
	connections *connections
}

// Port is what to listen for. Only TLS and MaxConnections may be empty.
type Port struct {
	// Name says in logs and errors what the requests are for.
	Name, Address string
	Handler       http.Handler
	// TLS is the configuration of the server; nil: plain HTTP.
	TLS *tls.Config
	// MaxConnections are open at most; 0: as many as are enough within a cluster. Past it, those are closed that have waited
	// longest for a request.
	MaxConnections int
	Log            *slog.Logger
	// Registerer takes the metrics of the connections.
	Registerer prometheus.Registerer
}

// Serve binds the address and serves until Shutdown or Close. What ends the listener before that goes
// to failed, which must have room for it.
func Serve(ctx context.Context, port Port, failed chan<- error) (*Server, error) {
	bound, err := new(net.ListenConfig).Listen(ctx, "tcp", port.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", port.Name, err)
	}
	open := newConnections(cmp.Or(port.MaxConnections, fewConnections), port.Registerer, port.Name)
	var listener net.Listener = owner{bound}
	if port.TLS != nil {
		listener = tls.NewListener(listener, port.TLS)
	}
	s := &Server{name: port.Name, connections: open, http: &http.Server{
		Handler:                      answerable(port.Handler),
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnState:                    open.changed,
		ConnContext:                  withConnection,
		DisableGeneralOptionsHandler: true, // OPTIONS * gets our 404, in our shape
		ErrorLog:                     slog.NewLogLogger(port.Log.Handler(), slog.LevelDebug),
	}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s requests: %w", port.Name, err)
		}
	}()
	port.Log.Info("listening", "for", port.Name, "address", bound.Addr().String(), "tls", port.TLS != nil)
	return s, nil
}

// Shutdown stops listening and waits for the requests under way. Those that are still under way when
// ctx ends are cut off, and that is the error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.connections.dropIdle()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("finish %s requests: %w", s.name, err), s.http.Close())
	}
	return nil
}

// Close stops listening at once.
func (s *Server) Close() { _ = s.http.Close() }
