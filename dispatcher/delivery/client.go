package delivery

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// Timeout is how long one attempt may take, from name resolution to the end of the answer.
const Timeout = 15 * time.Second

// Bounds of what one Client keeps and reads. What is kept is for the attempts that are under way at once when there is much to
// deliver, to one endpoint and to several merchants' of one host: a connection that is not kept is made again for each event.
const (
	maxAnswerBytes    = 4 << 10
	maxHeaderBytes    = 16 << 10
	maxIdle           = 1024
	maxIdlePerHost    = 64
	maxIdleConnection = 60 * time.Second
)

// Options are what the platform's operator decides about where events may go.
type Options struct {
	// AllowHTTP opens plain http.
	AllowHTTP bool
	// AllowCIDRs opens blocks of addresses that are not public.
	AllowCIDRs []netip.Prefix
	// Timeout bounds one attempt; 0: the constant Timeout.
	Timeout time.Duration
	// Resolver resolves the endpoints' names; nil: the system's.
	Resolver *net.Resolver
	// RootCAs are who may vouch for endpoints; nil: the system's.
	RootCAs *x509.CertPool
}

// Client sends events. It is safe for concurrent use. It logs nothing: what there is to know of an
// attempt is in its Result, and a URL, a body or an error may hold what nobody should read.
type Client struct {
	allowHTTP bool
	timeout   time.Duration
	transport *http.Transport
}

// New returns a Client. The error says which of the AllowCIDRs is none.
func New(options Options) (*Client, error) {
	guard, err := egress.NewGuard(options.AllowCIDRs)
	if err != nil {
		return nil, fmt.Errorf("guard webhooks: %w", err)
	}
	timeout := cmp.Or(options.Timeout, Timeout)
	return &Client{
		allowHTTP: options.AllowHTTP,
		timeout:   timeout,
		transport: newTransport(egress.NewDialer(guard, options.Resolver, timeout), options.RootCAs, timeout),
	}, nil
}

// Close lets go of the connections that wait to be used again.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
