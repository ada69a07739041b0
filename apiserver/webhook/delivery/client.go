package delivery

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Timeout is how long one attempt may take, from name resolution to the end of the answer.
const Timeout = 15 * time.Second

// Options are what the platform's operator decides about where events may go.
type Options struct {
	// AllowHTTP opens plain http.
	AllowHTTP bool
	// AllowCIDRs opens blocks of addresses that are not public.
	AllowCIDRs []netip.Prefix
	// Timeout bounds one attempt; 0: Timeout.
	Timeout time.Duration
	// Resolver resolves the endpoints' names; nil: the system's.
	Resolver *net.Resolver
	// RootCAs are who may vouch for endpoints; nil: the system's.
	RootCAs *x509.CertPool
}

// Client sends events. It is safe for concurrent use.
type Client struct{ timeout time.Duration }

// Request is one attempt.
type Request struct {
	URL string
	// ID is the webhook-id, the same on every attempt.
	ID   string
	Body []byte
	// Secrets sign, the newest first; without one nothing is sent.
	Secrets []published.SigningSecret
	// Now is the time of the attempt, which is signed.
	Now time.Time
}

// New returns a Client. The error says which of the AllowCIDRs is none.
func New(options Options) (*Client, error) {
	return &Client{timeout: options.Timeout}, nil
}

// Send makes one attempt. It returns within the timeout, whatever the endpoint does.
func (c *Client) Send(_ context.Context, _ Request) Result { return Result{Reason: ReasonInterrupted} }

// Close lets go of the connections that wait to be used again.
func (c *Client) Close() {}
