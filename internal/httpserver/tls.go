package httpserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// selfSignedLifetime is longer than any process runs.
const selfSignedLifetime = 10 * 365 * 24 * time.Hour

// TLS returns the configuration of a listener with tls.crt and tls.key of the directory, for example a mounted Secret. They are
// read for each connection, so that a renewed certificate is used at once. They must be a pair now; while they are none later, the last
// pair is served, also when it is no longer valid, and the log says so: a renewal that fails must not fail the liveness probes of all
// pods. Without a directory the certificate is self-signed: it encrypts, but clients cannot verify the server. A metric has the end of
// what is served.
func TLS(directory string, listener Options) (*tls.Config, error) {
	current, err := certificates(directory, listener.Log)
	if err != nil {
		return nil, err
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_tls_certificate_expiration_timestamp_seconds",
		Help:        "When the TLS certificate ends that the listener serves, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"listener": listener.Name},
	}, func() float64 { return float64(current().Leaf.NotAfter.Unix()) })
	err = listener.Registerer.Register(gauge)
	if err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) { // by another operator in the process of a test
		return nil, fmt.Errorf("register the end of the TLS certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current(), nil },
	}, nil
}

// certificates returns what to serve: the certificate of the directory, or a self-signed one.
func certificates(directory string, log *slog.Logger) (current func() *tls.Certificate, err error) {
	if directory == "" {
		certificate, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("create a self-signed certificate: %w", err)
		}
		return func() *tls.Certificate { return certificate }, nil
	}
	pair := &pair{directory: directory, log: log, failures: rate.Sometimes{Interval: time.Minute}}
	return pair.current, pair.load()
}

// pair is tls.crt and tls.key of a directory.
type pair struct {
	directory string
	log       *slog.Logger
	failures  rate.Sometimes // to load it, in the log

	mu   sync.Mutex
	last *tls.Certificate // the last one that could be loaded
}

// current returns the certificate of the files, or the last one.
func (p *pair) current() *tls.Certificate {
	err := p.load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures.Do(func() {
			p.log.Error("serving the last TLS certificate: that of the directory cannot be loaded",
				"directory", p.directory, "validUntil", p.last.Leaf.NotAfter, "error", err)
		})
	}
	return p.last
}

func (p *pair) load() error {
	loaded, err := tls.LoadX509KeyPair(filepath.Join(p.directory, "tls.crt"), filepath.Join(p.directory, "tls.key"))
	if err != nil {
		return fmt.Errorf("load the TLS certificate: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &loaded
	return nil
}

func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const serialBits = 120
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "merchant-operator self-signed"},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(selfSignedLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
