package console

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/merchant-operator/merchant-operator/console"
)

// With a certificate the console serves TLS only, so that a page with a key does not travel in the clear behind the proxy.
func TestPagesOverTLS(t *testing.T) {
	directory := t.TempDir()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var address string
	_, _, err = shared.StartConsole("console-with-tls", api.Internal, identities.Issuer, func(o *console.Options) {
		o.CertificateDir, address = directory, o.Address
		o.ExternalURL = "https://" + address
	})
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(chain)
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}}
	for scheme, want := range map[string]int{"https": http.StatusOK, "http": http.StatusBadRequest} {
		answer, err := trusting.Get(scheme + "://" + address + "/signed-out")
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != want {
			t.Errorf("%s: %d, want %d (%v)", scheme, answer.StatusCode, want, err)
		}
	}
}
