//go:build linux

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs the certificates of one cluster. Its key is never written down.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// identity is who a certificate speaks for.
type identity struct {
	name  string // the user, of a client
	group string
	hosts []string // of a server
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for the cluster: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "merchant-operator-cluster"}, key)
	if err != nil {
		return nil, fmt.Errorf("sign the cluster's certificate: %w", err)
	}
	return &authority{certificate: certificate, key: key}, nil
}

// issue makes a certificate and its key, in PEM.
func (a *authority) issue(to identity) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", to.name, err)
	}
	template := &x509.Certificate{ // CreateCertificate chooses a serial number
		Subject:     pkix.Name{CommonName: to.name},
		NotBefore:   a.certificate.NotBefore,
		NotAfter:    a.certificate.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if to.group != "" {
		template.Subject.Organization = []string{to.group}
	}
	for _, host := range to.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", to.name, err)
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return encodeCertificate(der), key, err
}

// write makes NAME.crt and NAME.key.
func (a *authority) write(directory, name string, to identity) error {
	certificate, key, err := a.issue(to)
	return errors.Join(err,
		os.WriteFile(filepath.Join(directory, name+".crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(directory, name+".key"), key, 0o600))
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
