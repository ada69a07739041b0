package httpserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// write puts a new certificate into the directory, and returns it.
func write(t *testing.T, directory string) *tls.Certificate {
	t.Helper()
	const hours = 1000
	made, err := selfSigned(time.Now().Add(-rand.N(hours * time.Hour)))
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

// wantEnd expects the end of the certificate in the metric, whether or not anybody has connected.
func wantEnd(t *testing.T, metrics prometheus.Gatherer, certificate *tls.Certificate) {
	t.Helper()
	want := fmt.Sprintf(`# HELP merchant_operator_tls_certificate_expiration_timestamp_seconds When the TLS certificate ends that the listener serves, in seconds since 1970.
# TYPE merchant_operator_tls_certificate_expiration_timestamp_seconds gauge
merchant_operator_tls_certificate_expiration_timestamp_seconds{listener="ops"} %d
`, certificate.Leaf.NotAfter.Unix())
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestTLS_RenewedCertificate(t *testing.T) {
	directory := t.TempDir()
	var log bytes.Buffer
	start := func() (*tls.Config, prometheus.Gatherer, error) {
		registry := prometheus.NewRegistry()
		config, err := TLS(directory, Options{Name: "ops", Log: slog.New(slog.NewTextHandler(&log, nil)), Registerer: registry})
		return config, registry, err
	}
	if _, _, err := start(); err == nil {
		t.Error("started without the given certificate")
	}
	first := write(t, directory)
	config, metrics, err := start()
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, metrics, first)
	if string(served(t, config)) != string(first.Certificate[0]) {
		t.Error("another certificate than that of the directory is served")
	}
	second := write(t, directory)
	wantEnd(t, metrics, second)
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
			config, metrics, err := start()
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
			wantEnd(t, metrics, good)
			end := "validUntil=" + good.Leaf.NotAfter.Format(time.DateOnly)
			if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), directory) || !strings.Contains(log.String(), end) {
				t.Errorf("logged %s, want one line that names the directory and the end of what is served", &log)
			}
			if _, _, err := start(); err == nil {
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
	selfSigning := func() (*tls.Config, error) { return TLS("", Options{Registerer: prometheus.NewRegistry()}) }
	config, err := selfSigning()
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
	if other, err := selfSigning(); err != nil || string(served(t, other)) == string(served(t, config)) {
		t.Errorf("two processes have one certificate (%v)", err)
	}
}
