package httpserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// served returns the first certificate of a handshake.
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
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := TLS(directory, logger); err == nil {
		t.Error("started without the given certificate")
	}
	first := write(t, directory)
	config, err := TLS(directory, logger)
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
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}

	for name, spoil := range map[string]func(file string) error{
		"the key of another certificate": func(file string) error {
			other := t.TempDir()
			write(t, other)
			return os.Rename(filepath.Join(other, "tls.key"), file)
		},
		"half a key": func(file string) error { return os.Truncate(file, 40) },
		"no key":     os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			good := write(t, directory)
			config, err := TLS(directory, logger)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(directory, "tls.key")); err != nil {
				t.Fatal(err)
			}
			for range 10 { // of a probe
				if string(served(t, config)) != string(good.Certificate[0]) {
					t.Error("another certificate than the last good one is served")
				}
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), directory) {
				t.Errorf("logged %s, want one line that names the directory", &log)
			}
			if _, err := TLS(directory, logger); err == nil {
				t.Error("started with a broken certificate")
			}
			good = write(t, directory)
			if string(served(t, config)) != string(good.Certificate[0]) {
				t.Error("the repaired certificate is not served")
			}
		})
	}
}

func TestTLS_SelfSignedLifetime(t *testing.T) {
	config, err := TLS("", nil)
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
	if other, err := TLS("", nil); err != nil || string(served(t, other)) == string(served(t, config)) {
		t.Errorf("two processes have one certificate (%v)", err)
	}
}
