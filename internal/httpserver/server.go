// Package httpserver owns what every listener of the data plane has in common: limits for clients that
// hold a connection for nothing, and one shape for all errors, also for those that net/http answers by
// itself.
package httpserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
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

// ErrorBody is the shape of every error.
type ErrorBody struct {
	Error string `json:"error"`
}

// shapedConn gives the shape of all errors to the answers net/http writes by itself, as plain text, to
// what it cannot parse: control characters in a header, too large a header, an unknown transfer
// encoding. There is no hook for them but the connection.
type shapedConn struct{ *net.TCPConn }

// What net/http writes, in one piece (func (c *conn) serve). No handler's answer begins like this, for
// our answers have other headers before Content-Type.
var (
	statusStart  = []byte("HTTP/1.1 ")
	plainHeaders = []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
)

// Write writes an answer, in the shape of all errors.
func (c shapedConn) Write(answer []byte) (int, error) {
	line, rest, _ := bytes.Cut(answer, []byte("\r\n"))
	if !bytes.HasPrefix(line, statusStart) || !bytes.HasPrefix(rest, plainHeaders) {
		return c.TCPConn.Write(answer)
	}
	if _, err := c.TCPConn.Write(shaped(line)); err != nil {
		return 0, err
	}
	return len(answer), nil
}

// shaped keeps the status line, such as "HTTP/1.1 400 Bad Request: invalid header value", and tells
// its reason in the body. net/http never quotes the request in it.
func shaped(line []byte) []byte {
	_, reason, _ := bytes.Cut(line[len(statusStart):], []byte(" "))
	body, _ := json.Marshal(ErrorBody{string(reason)}) //nolint:errchkjson // a string can always be written
	return fmt.Appendf(nil, "%s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\r\n%s", line, len(body), body)
}
