// Package httpserver serves HTTP on all listeners of the data plane: with timeouts, a limit of connections, and JSON errors, also
// for requests that net/http itself refuses.
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
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of every listener. A request takes milliseconds, a rotation seconds; streams and long polls set their own deadlines.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 15 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 16 << 10
	// defaultMaxConnections is for ports inside the cluster.
	defaultMaxConnections = 1000
)

// Server serves one listener.
type Server struct {
	name        string
	http        *http.Server
	connections *connections
}

// Options of a Server. TLS and MaxConnections are optional.
type Options struct {
	// Name of the listener in logs, errors and metrics.
	Name, Address string
	Handler       http.Handler
	// TLS is the configuration of the server; nil: plain HTTP.
	TLS *tls.Config
	// MaxConnections is the maximum of concurrent connections, default 1000; the longest idle is closed first.
	MaxConnections int
	// WriteTimeout is how long a request may take until its response is written. Default 15 s.
	WriteTimeout time.Duration
	Log          *slog.Logger
	// Registerer takes the metrics of the connections.
	Registerer prometheus.Registerer
}

// CheckAddress checks a listen address, given by a flag.
func CheckAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s must be a listen address such as :8080 or 127.0.0.1:8080, not %q", flag, address)
	}
	return nil
}

// Serve listens on the address and serves until Shutdown or Close. If the listener ends before that, its error goes to failed,
// which must have room for it.
func Serve(ctx context.Context, options Options, failed chan<- error) (*Server, error) {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", options.Name, err)
	}
	connections := newConnections(cmp.Or(options.MaxConnections, defaultMaxConnections), options.Registerer, options.Name)
	var listener net.Listener = trackingListener{socket, connections}
	if options.TLS != nil {
		listener = tls.NewListener(listener, options.TLS)
	}
	s := &Server{name: options.Name, connections: connections, http: &http.Server{
		Handler:                      abortDropped(options.Handler),
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 cmp.Or(options.WriteTimeout, writeTimeout),
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnState:                    connections.onStateChange,
		ConnContext:                  withConnection,
		DisableGeneralOptionsHandler: true, // OPTIONS * gets our JSON 404
		ErrorLog:                     slog.NewLogLogger(options.Log.Handler(), slog.LevelDebug),
	}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s requests: %w", options.Name, err)
		}
	}()
	options.Log.Info("listening", "for", options.Name, "address", socket.Addr().String(), "tls", options.TLS != nil)
	return s, nil
}

// Shutdown stops listening and waits for the requests in progress. If some are still in progress when ctx ends, they are
// aborted and Shutdown returns an error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.connections.dropIdle()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("finish %s requests: %w", s.name, err), s.http.Close())
	}
	return nil
}

// Close stops listening at once.
func (s *Server) Close() { _ = s.http.Close() }

// Loopback reports whether only this machine can connect to a listen address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// Confidential reports whether a request to the URL cannot be read on its way: it is https, or on this machine.
func Confidential(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname())
}

// ErrorBody is the JSON body of every error.
type ErrorBody struct {
	Error string `json:"error"`
}

// ErrorCodeHeader is the header in which an error has a word for programs.
const ErrorCodeHeader = "Error-Code"

// jsonErrorConn rewrites the plain text errors that net/http itself sends to requests it cannot parse: control characters in a
// header, too large a header, an unknown transfer encoding. net/http has no other hook for them.
type jsonErrorConn struct{ *net.TCPConn }

// The start of these errors, which net/http writes in one call (func (c *conn) serve). No handler's response starts like this:
// ours have other headers before Content-Type.
var (
	statusStart  = []byte("HTTP/1.1 ")
	plainHeaders = []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
)

// Write writes a response, with a JSON body if it is such an error.
func (c jsonErrorConn) Write(response []byte) (int, error) {
	line, rest, _ := bytes.Cut(response, []byte("\r\n"))
	if !bytes.HasPrefix(line, statusStart) || !bytes.HasPrefix(rest, plainHeaders) {
		return c.TCPConn.Write(response)
	}
	if _, err := c.TCPConn.Write(jsonError(line)); err != nil {
		return 0, err
	}
	return len(response), nil
}

// jsonError keeps the status line, such as "HTTP/1.1 400 Bad Request: invalid header value", and repeats its reason in the body.
// net/http never quotes the request in it.
func jsonError(line []byte) []byte {
	_, reason, _ := bytes.Cut(line[len(statusStart):], []byte(" "))
	body, _ := json.Marshal(ErrorBody{string(reason)}) //nolint:errchkjson // a string can always be written
	return fmt.Appendf(nil, "%s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/json\r\n"+ErrorCodeHeader+": invalid_request\r\nX-Content-Type-Options: nosniff\r\n\r\n%s", line, len(body), body)
}
