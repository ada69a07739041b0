package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// newTransport returns the way to endpoints. The attempt's own context bounds it; the timeouts here
// are for a dial that goes on after its attempt has ended.
//
// There is no limit of connections to one host: merchants share hosts, and the events of one would
// wait behind the slow answers to another's. The caller limits attempts instead.
func newTransport(dialer *egress.Dialer, roots *x509.CertPool, timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy would resolve and dial out of the guard's sight
		DialContext:            dialing(dialer),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the answer is thrown away, so it need not be small
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        maxIdleConnection,
	}
}

// dialError is what a dial failed with, which tells it from a failed handshake.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "dial: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

func dialing(dialer *egress.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return connection, nil
	}
}

// reasonOf names why no answer came. connected says whether the exchange had a connection to use.
func reasonOf(err error, connected bool) string {
	_, dialled := errors.AsType[*dialError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, egress.ErrRefused):
		return ReasonRefusedAddress
	case unresolved:
		return ReasonDNS
	case isTimeout(err):
		return ReasonTimeout
	case dialled:
		return ReasonConnect
	case connected:
		return ReasonNoAnswer
	}
	return ReasonTLS // between the dial and the exchange there is nothing else
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
