package delivery

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// What an endpoint may make this program read, keep and verify before it is trusted. crypto/tls reads 256 KiB of certificates and keeps
// them, parsed, as long as the connection; and it tries a hundred signatures to find a chain. A few hundred kept connections would
// take all memory, and a few handshakes a second all processors.
const (
	// maxHandshakeBytes has room for four certificates of 2 KiB and 250 names in the first of them.
	maxHandshakeBytes = 16 << 10
	// maxAnsweredBytes is what may arrive after a request: header, the part of the body that is read, and the rest of its record.
	maxAnsweredBytes = maxHeaderBytes + maxAnswerBytes + 20<<10
	maxCertificates  = 10 // of well-known chains the longest have five
	// maxParsedBytes is what all certificates of a connection may take once they are parsed, besides their own bytes and a fixed part of each.
	maxParsedBytes = 16 << 10
	// maxRSABits and maxRSAExponent are of the keys of issuers.
	maxRSABits, maxRSAExponent = 4096, 1<<16 + 1
)

var (
	errTooLong      = errors.New("the endpoint sends too much in the handshake or in its answer")
	errCertificates = errors.New("the certificates of the endpoint cost too much")
)

// dialTLS returns what opens connections over TLS, within the timeout.
func dialTLS(dialer *egress.Dialer, roots *x509.CertPool, timeout time.Duration) dialFunc {
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
		bounded := &boundedConn{Conn: connection}
		bounded.left.Store(maxHandshakeBytes)
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
		return &securedConn{secured, bounded}, nil
	}
}

// verify verifies certificates as crypto/tls does, unless they cost too much. Of several with one subject only the first may be an issuer, so there
// is one chain to try.
func verify(certificates []*x509.Certificate, host string, roots *x509.CertPool) error {
	if len(certificates) > maxCertificates {
		return errCertificates
	}
	parsed := 0
	intermediates, subjects := x509.NewCertPool(), map[string]bool{}
	for i, certificate := range certificates {
		parsed += parsedBytes(certificate)
		if i == 0 || subjects[string(certificate.RawSubject)] {
			continue
		}
		if key, isRSA := certificate.PublicKey.(*rsa.PublicKey); isRSA && (key.N.BitLen() > maxRSABits || key.E > maxRSAExponent) {
			return errCertificates
		}
		subjects[string(certificate.RawSubject)] = true
		intermediates.AddCert(certificate)
	}
	if parsed > maxParsedBytes {
		return errCertificates
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates})
	return err
}

// parsedBytes estimates what the lists of a parsed certificate take. An object identifier is the dearest: each of its bytes becomes an int.
func parsedBytes(c *x509.Certificate) int {
	const (
		text, address, block, uri, usage, policy, mapping = 24, 40, 100, 140, 8, 24, 48
		attribute, extension, identifier, arc             = 80, 56, 24, 8
	)
	bytes := text*(len(c.DNSNames)+len(c.EmailAddresses)+len(c.OCSPServer)+len(c.IssuingCertificateURL)+len(c.CRLDistributionPoints)+
		len(c.PermittedDNSDomains)+len(c.ExcludedDNSDomains)+len(c.PermittedEmailAddresses)+len(c.ExcludedEmailAddresses)+
		len(c.PermittedURIDomains)+len(c.ExcludedURIDomains)) +
		address*len(c.IPAddresses) + block*(len(c.PermittedIPRanges)+len(c.ExcludedIPRanges)) +
		uri*len(c.URIs) + usage*len(c.ExtKeyUsage) + policy*len(c.Policies) + mapping*len(c.PolicyMappings)
	for _, names := range [][]pkix.AttributeTypeAndValue{c.Subject.Names, c.Issuer.Names} {
		for _, name := range names {
			bytes += attribute + arc*len(name.Type)
		}
	}
	for _, one := range c.Extensions {
		bytes += extension + arc*len(one.Id)
	}
	for _, identifiers := range [][]asn1.ObjectIdentifier{c.UnknownExtKeyUsage, c.PolicyIdentifiers, c.UnhandledCriticalExtensions} {
		for _, one := range identifiers {
			bytes += identifier + arc*len(one)
		}
	}
	return bytes
}

// boundedConn bounds what is read.
type boundedConn struct {
	net.Conn

	left atomic.Int64
}

func (c *boundedConn) Read(into []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(into[:min(int64(len(into)), left)])
	c.left.Add(-int64(n))
	return n, err
}

// securedConn bounds what an endpoint sends for each request: it may ask for new keys sixteen times for each byte of an answer, and crypto/tls
// answers each.
type securedConn struct {
	*tls.Conn

	under *boundedConn
}

// Write sends a request, so an answer may follow.
func (c *securedConn) Write(from []byte) (int, error) {
	c.under.left.Store(maxAnsweredBytes)
	return c.Conn.Write(from)
}

// Close sends no last message of TLS: it would wait for the answer to a KeyUpdate, forever if the endpoint does not read.
func (c *securedConn) Close() error { return c.under.Close() }
