//go:build linux

package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// TestWriteConfigs: everything that a program of the node is pointed at exists, for nobody else to read, and the
// kubeconfigs speak to the server in the name of one whom its authority vouches for.
func TestWriteConfigs(t *testing.T) {
	directory := t.TempDir()
	if err := writeConfigs(directory); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs(directory) {
		for _, argument := range program.args {
			_, path, ok := strings.Cut(argument, "=")
			if !ok {
				path = argument
			}
			if strings.HasPrefix(path, directory) {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s is pointed at %s: %v, %v", program.name, path, info, err)
				}
			}
		}
	}

	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("read the authority: %v", err)
	}
	for name, who := range clients() {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != kubernetesURL {
			t.Errorf("%s is for %s", name, config.Host)
		}
		certificate := decode(t, config.CertData)
		if certificate.Subject.CommonName != who.name {
			t.Errorf("%s speaks for %s, want %s", name, certificate.Subject.CommonName, who.name)
		}
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerCertificateIsForPodsToo(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	content, _, err := ca.issue(identity{name: "server", hosts: []string{kubernetesIP, "kubernetes.default.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{kubernetesIP, "kubernetes.default.svc"} {
		if err := decode(t, content).VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

// TestProcessThatIsAnothers: a number that was given to another process must not be taken for the node's.
func TestProcessThatIsAnothers(t *testing.T) {
	began, err := beginning(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !(process{PID: os.Getpid(), Began: began}).runs() {
		t.Error("this test does not run")
	}
	if (process{PID: os.Getpid(), Began: began + "0"}).runs() {
		t.Error("a process of another time is taken for the node")
	}
}

func decode(t *testing.T, content []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatal("no certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
