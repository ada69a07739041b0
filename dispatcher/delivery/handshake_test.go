package delivery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
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
	return a.certify(t, template, &a.key.PublicKey)
}

// intermediate makes an authority below this one, all with one name.
func (a authority) intermediate(t *testing.T) authority {
	t.Helper()
	below := newAuthority(t)
	template := *below.certificate
	template.RawSubject, template.Subject = nil, pkix.Name{CommonName: "below an authority"}
	return authority{a.certify(t, &template, &below.key.PublicKey), below.key}
}

func (a authority) certify(t *testing.T, template *x509.Certificate, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// An endpoint costs little before its certificate is known to be good; what it sends after that has other bounds.
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
	names := func(count int) *x509.Certificate {
		return endpoint(func(c *x509.Certificate) {
			for n := range count {
				c.DNSNames = append(c.DNSNames, fmt.Sprintf("the-shop-with-number-%d.example", n))
			}
		})
	}
	for name, test := range map[string]struct {
		leaf  *x509.Certificate
		more  int // further certificates
		bytes int // of each
		want  string
	}{
		"the names of a large host": {names(250), 0, 0, "delivered"},
		"a large host with a chain": {names(100), 3, 1700, "delivered"},
		"a certificate of URIs": {
			endpoint(func(c *x509.Certificate) { c.URIs = slices.Repeat([]*url.URL{{}}, 120) }), 0, 0, "tls",
		},
		"a certificate of names": {
			endpoint(func(c *x509.Certificate) { c.EmailAddresses = slices.Repeat([]string{"a"}, 700) }), 0, 0, "tls",
		},
		"a certificate of numbers": {
			endpoint(func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: slices.Repeat([]int{1}, 2100), Value: []byte{5, 0}}}
			}), 0, 0, "tls",
		},
		"a certificate of short names": {
			endpoint(func(c *x509.Certificate) {
				c.Subject.ExtraNames = slices.Repeat([]pkix.AttributeTypeAndValue{{Type: []int{1, 2}, Value: "a"}}, 180)
			}), 0, 0, "tls",
		},
		"a good one":               {good, 0, 0, "delivered"},
		"a long chain":             {good, 9, 1000, "delivered"},
		"too many certificates":    {good, 10, 0, "tls"},
		"certificates too large":   {good, 1, 16 << 10, "tls"},
		"the most that TLS allows": {good, 1, 250_000, "tls"},
		"expired":                  {endpoint(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), 0, 0, "tls"},
		"of another host":          {endpoint(other), 0, 0, "tls"},
		"for clients": {
			endpoint(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), 0, 0, "tls",
		},
		"of nobody": {newAuthority(t).issue(t, good), 0, 0, "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			chain := []*x509.Certificate{test.leaf}
			for range test.more {
				chain = append(chain, endpoint(func(c *x509.Certificate) {
					c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Value: make([]byte, test.bytes)}}
				}))
			}
			r := present(t, a.key, chain...)
			c := client(t, a.trusted())
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

// There is one chain to try, and each of its signatures is cheap, whatever else an endpoint sends.
func TestSend_Chains(t *testing.T) {
	a := newAuthority(t)
	first, second := a.intermediate(t), a.intermediate(t)
	leaf := first.issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	slow := a.certify(t, a.certificate, &rsa.PublicKey{N: large.N, E: 1<<31 - 1})
	for name, test := range map[string]struct {
		more []*x509.Certificate
		want string
	}{
		"an issuer":                           {[]*x509.Certificate{first.certificate}, "delivered"},
		"an issuer, and all once more":        {[]*x509.Certificate{first.certificate, leaf, first.certificate, a.certificate}, "delivered"},
		"another of its name":                 {[]*x509.Certificate{first.certificate, second.certificate}, "delivered"},
		"another of its name comes first":     {[]*x509.Certificate{second.certificate, first.certificate}, "tls"},
		"an issuer whose signatures are slow": {[]*x509.Certificate{first.certificate, slow}, "tls"},
		"no issuer":                           {nil, "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			r := present(t, first.key, append([]*x509.Certificate{leaf}, test.more...)...)
			if got := send(t, a.trusted(), attempt(r.URL)); got.Reason != test.want {
				t.Errorf("%+v, want %s", got, test.want)
			}
		})
	}
}

// present starts an endpoint with these certificates, whose answers are large.
func present(t *testing.T, key *ecdsa.PrivateKey, chain ...*x509.Certificate) *receiver {
	t.Helper()
	r := unstarted(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Padding", strings.Repeat("x", 12<<10))
		_, _ = io.WriteString(w, "thank you")
	})
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	certificate := tls.Certificate{PrivateKey: key}
	for _, one := range chain {
		certificate.Certificate = append(certificate.Certificate, one.Raw)
	}
	r.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// trusted returns options that trust the authority.
func (a authority) trusted() delivery.Options {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return delivery.Options{Rules: loopback, Timeout: never, RootCAs: roots}
}
