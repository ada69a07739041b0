package delivery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

// authority issues certificates of endpoints.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}, key}
	a.certificate = a.issue(t, a.certificate)
	return a
}

// issue makes a certificate, whose key is the authority's as well.
func (a authority) issue(t *testing.T, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// Before its certificate is known to be good, an endpoint costs little; what it sends after that has other bounds.
func TestSend_Handshake(t *testing.T) {
	a := newAuthority(t)
	endpoint := func(change func(*x509.Certificate)) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		change(template)
		return a.issue(t, template)
	}
	good := endpoint(func(*x509.Certificate) {})
	other := func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"shop.example"} }
	for name, test := range map[string]struct {
		leaf  *x509.Certificate
		more  int // further certificates
		bytes int // of each
		want  string
	}{
		"a good one":               {good, 0, 0, "delivered"},
		"a long chain":             {good, 9, 1000, "delivered"},
		"too many certificates":    {good, 10, 0, "tls"},
		"certificates too large":   {good, 1, 32 << 10, "tls"},
		"the most that TLS allows": {good, 1, 250_000, "tls"},
		"expired":                  {endpoint(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), 0, 0, "tls"},
		"of another host":          {endpoint(other), 0, 0, "tls"},
		"for clients": {
			endpoint(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), 0, 0, "tls",
		},
		"of nobody": {newAuthority(t).issue(t, good), 0, 0, "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			chain := [][]byte{test.leaf.Raw}
			for range test.more {
				chain = append(chain, endpoint(func(c *x509.Certificate) {
					c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Value: make([]byte, test.bytes)}}
				}).Raw)
			}
			r := unstarted(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Padding", strings.Repeat("x", 12<<10))
				_, _ = io.WriteString(w, "thank you")
			})
			r.Config.ErrorLog = log.New(io.Discard, "", 0)
			r.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: a.key}}} //nolint:gosec // an endpoint
			r.StartTLS()
			t.Cleanup(r.Close)
			roots := x509.NewCertPool()
			roots.AddCert(a.certificate)
			c := client(t, delivery.Options{Rules: loopback, Timeout: never, RootCAs: roots})
			for range 5 { // on one connection, more than a handshake may have
				if got := c.Send(t.Context(), attempt(r.URL)); got.Reason != test.want {
					t.Fatalf("%+v, want %s", got, test.want)
				}
			}
			if dials := r.dials.Load(); test.want == "delivered" && dials != 1 {
				t.Errorf("%d connections, want 1", dials)
			}
		})
	}
}
