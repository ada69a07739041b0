package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

var amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}

// TestCheck breaks each promise of the image once. The binary is not the product's: any static one will do.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*v1.Platform, *v1.Config, *[]file)
		want   string
	}{
		{name: "as it should be"},
		{name: "a shell", want: "/bin/sh", change: func(_ *v1.Platform, _ *v1.Config, files *[]file) {
			*files = append(*files, file{"/bin/sh", 0o755, nil})
		}},
		{name: "root", want: "runs as", change: func(_ *v1.Platform, c *v1.Config, _ *[]file) { c.User = "" }},
		{name: "a user name", want: "runs as", change: func(_ *v1.Platform, c *v1.Config, _ *[]file) { c.User = "nonroot" }},
		{name: "no certificate authorities", want: "certificate authorities", change: func(_ *v1.Platform, _ *v1.Config, files *[]file) {
			(*files)[0].content = nil
		}},
		{name: "set-user-id", want: "mode", change: func(_ *v1.Platform, _ *v1.Config, files *[]file) { (*files)[1].mode = 0o4755 }},
		{name: "another machine", want: "EM_X86_64", change: func(p *v1.Platform, _ *v1.Config, _ *[]file) { p.Architecture = "arm64" }},
		{name: "no binary", want: "ELF", change: func(_ *v1.Platform, _ *v1.Config, files *[]file) {
			(*files)[1].content = []byte("#!/bin/sh")
		}},
		{name: "another program", want: "entrypoint", change: func(_ *v1.Platform, c *v1.Config, _ *[]file) { c.Entrypoint = []string{"sh"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			platform, config, files := amd64, imageConfig("v1"), imageFiles(staticBinary())
			if test.change != nil {
				test.change(&platform, &config, &files)
			}
			err := checkArchive(written(t, "app:v1", mustImage(t, platform, config, files)))
			if test.want == "" && err != nil {
				t.Errorf("checkArchive: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("checkArchive: %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestArchive_RoundTrip(t *testing.T) {
	arm64 := v1.Platform{OS: "linux", Architecture: "arm64"}
	write := func() string {
		return written(t, "example.com/app:v1",
			mustImage(t, amd64, imageConfig("v1"), []file{{"/usr/bin/app", 0o755, []byte("amd64")}}),
			mustImage(t, arm64, imageConfig("v1"), []file{{"/usr/bin/app", 0o755, []byte("arm64")}}))
	}
	path := write()
	images, err := readArchive(path)
	if err != nil || len(images) != 2 {
		t.Fatalf("%d images, %v; want one for each platform", len(images), err)
	}
	for i, platform := range []v1.Platform{amd64, arm64} {
		got := images[i]
		if !got.config.Platform().Equals(platform) || string(got.files["/usr/bin/app"].content) != platform.Architecture || len(got.files) != 1 {
			t.Errorf("image %d is for %s and holds %v", i, got.config.Platform(), got.files)
		}
	}
	if !bytes.Equal(read(t, path), read(t, write())) {
		t.Error("the same images give two different archives")
	}
	changed := filepath.Join(t.TempDir(), "changed.tar")
	if err := os.WriteFile(changed, bytes.ReplaceAll(read(t, path), []byte("65532:65532"), []byte("65532:00000")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readArchive(changed); err == nil {
		t.Error("an archive with a changed blob was read")
	}
}

// containerd and the kubelet look images up by their full names.
func TestArchive_FullName(t *testing.T) {
	for name, want := range map[string]string{
		"merchant-operator:v1":         "docker.io/library/merchant-operator:v1",
		"me/merchant-operator:v1":      "docker.io/me/merchant-operator:v1",
		"ghcr.io/me/operator:v1":       "ghcr.io/me/operator:v1",
		"registry:5000/me/operator:v1": "registry:5000/me/operator:v1",
	} {
		archive := read(t, written(t, name, mustImage(t, amd64, imageConfig("v1"), nil)))
		if !bytes.Contains(archive, []byte(`"io.containerd.image.name": "`+want+`"`)) {
			t.Errorf("the archive of %s does not name %s", name, want)
		}
	}
}

func TestRoots_Mozilla(t *testing.T) {
	if own, err := os.ReadFile(rootsPath); err == nil && bytes.Equal(own, roots()) {
		t.Error("the certificate authorities are this machine's")
	}
	if count := bytes.Count(roots(), []byte("BEGIN CERTIFICATE")); count < 100 {
		t.Errorf("%d certificate authorities", count)
	}
}

// TestSBOM describes an image whose program is this test, which is built from several modules as well.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	archive := written(t, "example.com/merchant-operator:v1", mustImage(t, amd64, imageConfig("v1"), imageFiles(read(t, self))))
	if err := writeSBOMs(context.Background(), "1.2.3", archive, directory); err != nil {
		t.Fatal(err)
	}
	var got spdx.Document
	if err := json.Unmarshal(read(t, filepath.Join(directory, "sbom-linux-amd64.spdx.json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.DocumentName != "merchant-operator 1.2.3 for linux/amd64" || !strings.HasPrefix(got.DocumentNamespace, home) {
		t.Errorf("it is %q in %q", got.DocumentName, got.DocumentNamespace)
	}
	var urls []string
	for i, one := range got.Packages {
		if related := got.Relationships[i].RefB.ElementRefID; related != one.PackageSPDXIdentifier {
			t.Errorf("relationship %d is to %s, not to %s", i, related, one.PackageSPDXIdentifier)
		}
		for _, ref := range one.PackageExternalReferences {
			urls = append(urls, ref.Locator)
		}
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range info.Deps {
		want = append(want, "pkg:golang/"+module.Path+"@"+strings.ReplaceAll(module.Version, "+", "%2B"))
	}
	for _, url := range want {
		if !slices.Contains(urls, url) {
			t.Errorf("it does not name %s", url)
		}
	}
}

func mustImage(t *testing.T, platform v1.Platform, config v1.Config, files []file) v1.Image {
	t.Helper()
	image, err := newImage(platform, time.Unix(0, 0), config, files)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func written(t *testing.T, name string, images ...v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := writeArchive(path, name, images...); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// staticBinary is an ELF header for x86-64, without a program.
func staticBinary() []byte {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20] = 2, 62, 1 // executable, x86-64, version 1
	header[52], header[54], header[58] = 64, 56, 64
	return header
}
