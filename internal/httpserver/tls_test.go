package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// write puts a new certificate into the directory, and returns it.
func write(t *testing.T, directory string) *tls.Certificate {
	t.Helper()
	made, err := selfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: made.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(directory, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func served(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	certificate, err := config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Certificate[0]
}

func TestTLS_RenewedCertificate(t *testing.T) {
	directory := t.TempDir()
	if _, err := TLS(directory); err == nil {
		t.Error("started without the given certificate")
	}
	first := write(t, directory)
	config, err := TLS(directory)
	if err != nil {
		t.Fatal(err)
	}
	if string(served(t, config)) != string(first.Certificate[0]) {
		t.Error("another certificate than that of the directory is served")
	}
	second := write(t, directory)
	if string(served(t, config)) != string(second.Certificate[0]) {
		t.Error("the renewed certificate is not served")
	}
}

func TestTLS_SelfSignedLifetime(t *testing.T) {
	config, err := TLS("")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(served(t, config))
	if err != nil {
		t.Fatal(err)
	}
	if now := time.Now(); now.Before(certificate.NotBefore) || now.AddDate(5, 0, 0).After(certificate.NotAfter) {
		t.Errorf("valid from %s until %s", certificate.NotBefore, certificate.NotAfter)
	}
	if other, err := TLS(""); err != nil || string(served(t, other)) == string(served(t, config)) {
		t.Errorf("two processes have one certificate (%v)", err)
	}
}
