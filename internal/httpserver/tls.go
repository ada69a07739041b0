package httpserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path/filepath"
	"time"
)

// selfSignedLifetime is longer than any process runs.
const selfSignedLifetime = 10 * 365 * 24 * time.Hour

// TLS returns the configuration of a server with tls.crt and tls.key of the directory, for example a mounted Secret. They are
// read for each connection, so that a renewed certificate is used at once. Without a directory the certificate is self-signed:
// it encrypts, but clients cannot verify the server.
func TLS(directory string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if directory == "" {
		certificate, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("create a self-signed certificate: %w", err)
		}
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		loaded, err := tls.LoadX509KeyPair(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("load the TLS certificate: %w", err)
		}
		return &loaded, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() }
	return config, nil
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
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
