package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// What an endpoint may make this program read, keep and verify before it is trusted. crypto/tls reads 256 KiB of certificates and keeps
// them as long as the connection, and tries a hundred of them as issuers of one: a thousand kept connections take all memory, and a
// few handshakes a second all processors.
const (
	maxHandshakeBytes = 32 << 10
	maxCertificates   = 10 // of well-known chains the longest have five
)

var (
	errHandshakeTooLong    = errors.New("the endpoint sends too much before the handshake has ended")
	errTooManyCertificates = errors.New("the endpoint sends too many certificates")
)

// dialTLS returns what opens connections over TLS, within the timeout.
func dialTLS(dialer *egress.Dialer, roots *x509.CertPool, timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dial := dialContext(dialer)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		bounded := &handshakeConn{Conn: connection, left: maxHandshakeBytes}
		secured := tls.Client(bounded, &tls.Config{
			ServerName:         host,
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // verify does it, after it has counted the certificates
			VerifyConnection:   func(state tls.ConnectionState) error { return verify(state.PeerCertificates, host, roots) },
		})
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = connection.Close()
			return nil, err
		}
		bounded.over = true
		return secured, nil
	}
}

// verify verifies certificates as crypto/tls does, unless there are too many.
func verify(certificates []*x509.Certificate, host string, roots *x509.CertPool) error {
	if len(certificates) > maxCertificates {
		return errTooManyCertificates
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range certificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates})
	return err
}

// handshakeConn bounds what is read until the handshake is over.
type handshakeConn struct {
	net.Conn

	left int
	over bool
}

func (c *handshakeConn) Read(into []byte) (int, error) {
	if c.over {
		return c.Conn.Read(into)
	}
	if c.left == 0 {
		return 0, errHandshakeTooLong
	}
	n, err := c.Conn.Read(into[:min(len(into), c.left)])
	c.left -= n
	return n, err
}
