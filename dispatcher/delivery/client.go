// Package delivery makes one attempt to deliver one event: its Standard Webhooks signatures, and the HTTP exchange with an
// untrusted endpoint. Its caller decides when to try, and how often.
package delivery

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// Timeout is how long one attempt may take, from name resolution to the end of the answer.
const Timeout = 15 * time.Second

// What a Client reads and keeps. Enough connections are kept for the attempts in progress under load, to one endpoint
// and to several merchants' endpoints on one host: a connection that is not kept is opened again for each event.
const (
	maxAnswerBytes = 4 << 10
	maxHeaderBytes = 16 << 10
	maxIdle        = 512
	maxIdlePerHost = 64
	// maxIdleConnection ends before the second attempt of an event whose first one took a connection that a balancer had forgotten:
	// there may be more of those.
	maxIdleConnection = Timeout
	// maxConnectionAge is how long connections take new attempts. A name may have moved meanwhile, while its old host still answers.
	maxConnectionAge = 5 * time.Minute
)

// Options say where events may go.
type Options struct {
	// AllowHTTP allows plain HTTP.
	AllowHTTP bool
	// Rules say which addresses and names are allowed, besides public ones.
	egress.Rules
	// Timeout bounds one attempt; 0: the constant Timeout.
	Timeout time.Duration
	// Resolver resolves the names of endpoints; nil: the system's.
	Resolver *net.Resolver
	// RootCAs verify the certificates of endpoints; nil: the system's.
	RootCAs *x509.CertPool
	// Now is the time; nil: time.Now.
	Now func() time.Time
}

// Client sends events. It is safe for concurrent use. It logs nothing: a Result has all there is to know of an attempt,
// and a URL, a body or an error may contain secrets.
type Client struct {
	allowHTTP bool
	guard     egress.Guard
	timeout   time.Duration
	now       func() time.Time
	connect   func() *http.Transport

	mu        sync.Mutex
	transport *http.Transport
	since     time.Time // of the transport
}

// New returns a Client. An error is about one of the Rules, and names its flag.
func New(options Options) (*Client, error) {
	guard, err := egress.NewGuard(options.Rules)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(options.Timeout, Timeout)
	dialer, going, now := egress.NewDialer(guard, options.Resolver, timeout), newDials(), options.Now
	if now == nil {
		now = time.Now
	}
	return &Client{
		allowHTTP: options.AllowHTTP,
		guard:     guard,
		timeout:   timeout,
		now:       now,
		connect:   func() *http.Transport { return newTransport(dialer, going, options.RootCAs, timeout) },
	}, nil
}

// connections returns the transport of an attempt. The one before it keeps only what its last attempts use.
func (c *Client) connections() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.transport == nil || now.Sub(c.since) >= maxConnectionAge {
		if former := c.transport; former != nil {
			former.CloseIdleConnections() // an endpoint decides how much memory each takes
			time.AfterFunc(c.timeout, former.CloseIdleConnections)
		}
		c.transport, c.since = c.connect(), now
	}
	return c.transport
}

// Close closes the idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// newTransport's timeout is for a dial that continues after its attempt has ended, as dials allow; an attempt has its own context.
// Connections to one host have no limit: merchants share hosts, and events of one would wait for slow answers to
// another's. The caller limits attempts instead.
func newTransport(dialer *egress.Dialer, going *dials, roots *x509.CertPool, timeout time.Duration) *http.Transport {
	// On an idle connection of HTTP/2 an endpoint can send frames without end, which the transport reads and answers. Over HTTP/1.1
	// one byte ends an idle connection.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols:              protocols,
		Proxy:                  nil, // a proxy would resolve and dial where the guard cannot see it
		DialContext:            going.bound(dialContext(dialer)),
		DialTLSContext:         going.bound(dialTLS(dialer, roots, timeout)),
		DisableCompression:     true, // the answer is discarded, so it need not be small
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        maxIdleConnection,
	}
}

// dialError distinguishes a failed dial from a failed handshake.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "dial: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func dialContext(dialer *egress.Dialer) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return connection, nil
	}
}

// failureReason returns the Reason of an attempt without an answer. connected says whether there was a connection.
func failureReason(err error, connected bool) string {
	_, dialFailed := errors.AsType[*dialError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, egress.ErrRefused):
		return ReasonRefusedAddress
	case unresolved:
		return ReasonDNS
	case isTimeout(err):
		return ReasonTimeout
	case dialFailed:
		return ReasonConnect
	case connected, isClosed(err): // also during the handshake: a receiver that restarts has no TLS problem
		return ReasonNoAnswer
	}
	return ReasonTLS // nothing else is between the dial and the exchange
}

func isClosed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
