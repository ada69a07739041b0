package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
)

func TestKeysAreNotIssuedOverPlainHTTP(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.InternalAddress = ":0" })
	r.issue(id, console, f.of(1, 0)).wantError(t, http.StatusForbidden,
		"API keys and signing secrets are issued over TLS only; start the API with --internal-cert-dir")
	r.report("x", rail, "").want(t, http.StatusNotFound) // a settlement has no secret
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestKeysAreIssuedOverTLS(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	dir := t.TempDir()
	authority := certificate(t, dir)
	r := f.start(func(o *apiserver.Options) { o.InternalAddress, o.InternalCertificateDir = ":0", dir })
	r.internal = strings.Replace(r.internal, "http://[::]", "https://127.0.0.1", 1)
	trusting := func(authority *x509.CertPool) *http.Client {
		return &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority}}}
	}
	client := trusting(authority)
	f.issuedKey(r.with(client).issue(id, console, f.of(1, 0)))
	r.with(client).report("x", rail, "").want(t, http.StatusNotFound)

	authority = certificate(t, dir) // renewed, by another authority
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.internal+rotationOf(id), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := trusting(x509.NewCertPool()).Do(request); err == nil {
		_ = response.Body.Close()
		t.Error("an unknown authority is trusted")
	}
	f.issuedKey(r.with(trusting(authority)).issue(id, console, f.of(2, 0)))
}

// with is the replica, seen by another client.
func (r *replica) with(client *http.Client) *replica {
	seen := *r
	seen.client = client
	return &seen
}

// certificate writes a certificate for the loopback address and its key, and returns who can verify it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "internal"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

func TestAMissingCertificateStopsTheStart(t *testing.T) {
	f := newFixture(t)
	r := f.launch(func(o *apiserver.Options) { o.InternalCertificateDir = t.TempDir() })
	select {
	case err := <-r.ended:
		if err == nil || !strings.Contains(err.Error(), "--internal-cert-dir") {
			t.Errorf("Run ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on")
	}
}
