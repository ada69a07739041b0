package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// TestCheck breaks each promise of the image once. The binary is not the product's: any static one will do.
func TestCheck(t *testing.T) {
	binary := staticBinary(t)
	amd64 := oci.Platform{OS: "linux", Architecture: "amd64"}
	for _, test := range []struct {
		name   string
		change func(*oci.Image)
		want   string
	}{
		{name: "as it should be"},
		{name: "a shell", want: "/bin/sh", change: func(i *oci.Image) {
			i.Files = append(i.Files, oci.File{Path: "/bin/sh", Mode: 0o755})
		}},
		{name: "root", want: "runs as", change: func(i *oci.Image) { i.Config.User = "" }},
		{name: "a name, which Kubernetes cannot check", want: "runs as", change: func(i *oci.Image) { i.Config.User = "nonroot" }},
		{name: "no certificate authorities", want: "certificate authorities", change: func(i *oci.Image) { i.Files[0].Content = nil }},
		{name: "set-user-id", want: "mode", change: func(i *oci.Image) { i.Files[1].Mode = 0o4755 }},
		{name: "for another machine", want: "EM_X86_64", change: func(i *oci.Image) { i.Platform.Architecture = "arm64" }},
		{name: "no binary", want: "binary", change: func(i *oci.Image) { i.Files[1].Content = []byte("#!/bin/sh") }},
		{name: "starts something else", want: "starts", change: func(i *oci.Image) { i.Config.Entrypoint = []string{"sh"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			image := productImage(amd64, time.Unix(0, 0), "v1", binary)
			if test.change != nil {
				test.change(&image)
			}
			err := check(image)
			if test.want == "" && err != nil {
				t.Errorf("check: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check: %v, want an error about %q", err, test.want)
			}
		})
	}
}

// staticBinary is a hand-made ELF file of x86-64: a header and no program.
func staticBinary(t *testing.T) []byte {
	t.Helper()
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20] = 2, 62, 1 // executable, x86-64, version 1
	header[52], header[54], header[58] = 64, 56, 64
	return header
}

func TestRootsAreThoseOfMozilla(t *testing.T) {
	own, err := os.ReadFile(rootsPath)
	if err == nil && string(own) == string(roots()) {
		t.Error("the certificate authorities are this machine's")
	}
	if count := strings.Count(string(roots()), "BEGIN CERTIFICATE"); count < 100 {
		t.Errorf("%d certificate authorities", count)
	}
}

func TestFullName(t *testing.T) {
	for name, want := range map[string]string{
		"merchant-operator:v1":         "docker.io/library/merchant-operator:v1",
		"me/merchant-operator:v1":      "docker.io/me/merchant-operator:v1",
		"ghcr.io/me/operator:v1":       "ghcr.io/me/operator:v1",
		"localhost/operator:v1":        "localhost/operator:v1",
		"registry:5000/me/operator:v1": "registry:5000/me/operator:v1",
	} {
		if got := fullName(name); got != want {
			t.Errorf("fullName(%q) = %q, want %q", name, got, want)
		}
	}
}
