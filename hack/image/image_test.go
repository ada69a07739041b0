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
		{name: "another program", want: "starts", change: func(_ *v1.Platform, c *v1.Config, _ *[]file) { c.Entrypoint = []string{"sh"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			platform, config, files := amd64, productConfig("v1"), productFiles(staticBinary())
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

func TestArchiveHoldsWhatWasWritten(t *testing.T) {
	arm64 := v1.Platform{OS: "linux", Architecture: "arm64"}
	config := productConfig("v1")
	write := func() string {
		return written(t, "example.com/app:v1",
			mustImage(t, amd64, config, []file{{"/usr/bin/app", 0o755, []byte("amd64")}, {"/etc/same", 0o644, []byte("same")}}),
			mustImage(t, arm64, config, []file{{"/usr/bin/app", 0o755, []byte("arm64")}, {"/etc/same", 0o644, []byte("same")}}))
	}
	path := write()
	images, err := readArchive(path)
	if err != nil || len(images) != 2 {
		t.Fatalf("%d images, %v; want one for each platform", len(images), err)
	}
	for i, platform := range []v1.Platform{amd64, arm64} {
		got := images[i]
		if !got.config.Platform().Equals(platform) || got.config.Config.User != user {
			t.Errorf("image %d is for %s as user %s", i, got.config.Platform(), got.config.Config.User)
		}
		if string(got.file("/usr/bin/app")) != platform.Architecture || string(got.file("/etc/same")) != "same" || len(got.files) != 2 {
			t.Errorf("the image for %s holds %v", platform, got.files)
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
	for _, path := range []string{"app", "/../app"} {
		if _, err := newImage(amd64, time.Unix(0, 0), config, []file{{path, 0o755, nil}}); err == nil {
			t.Errorf("an image with the path %s was made", path)
		}
	}
}

// containerd and the kubelet look images up by their full names.
func TestArchiveHasTheFullName(t *testing.T) {
	for name, want := range map[string]string{
		"merchant-operator:v1":         "docker.io/library/merchant-operator:v1",
		"me/merchant-operator:v1":      "docker.io/me/merchant-operator:v1",
		"ghcr.io/me/operator:v1":       "ghcr.io/me/operator:v1",
		"registry:5000/me/operator:v1": "registry:5000/me/operator:v1",
	} {
		archive := read(t, written(t, name, mustImage(t, amd64, productConfig("v1"), nil)))
		if !bytes.Contains(archive, []byte(`"io.containerd.image.name": "`+want+`"`)) {
			t.Errorf("the archive of %s does not name %s", name, want)
		}
	}
}

func TestRootsAreThoseOfMozilla(t *testing.T) {
	if own, err := os.ReadFile(rootsPath); err == nil && bytes.Equal(own, roots()) {
		t.Error("the certificate authorities are this machine's")
	}
	if count := bytes.Count(roots(), []byte("BEGIN CERTIFICATE")); count < 100 {
		t.Errorf("%d certificate authorities", count)
	}
}

func TestLibrariesArePaths(t *testing.T) {
	for _, library := range libraries(t.Context(), "/bin/ls") {
		if !filepath.IsAbs(library) {
			t.Errorf("library %q", library)
		}
	}
	if got := libraries(t.Context(), "/proc/version"); len(got) > 0 {
		t.Errorf("libraries of what is no program: %q", got)
	}
}

// TestSBOM describes an image whose program is this test, which is built of several modules as well.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	archive := written(t, "example.com/merchant-operator:v1", mustImage(t, amd64, productConfig("v1"), productFiles(read(t, self))))
	if err := writeSBOMs(context.Background(), "1.2.3", archive, directory); err != nil {
		t.Fatal(err)
	}
	var got document
	if err := json.Unmarshal(read(t, filepath.Join(directory, "sbom-linux-amd64.spdx.json")), &got); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range info.Deps {
		want = append(want, "pkg:golang/"+module.Path+"@"+strings.ReplaceAll(module.Version, "+", "%2B"))
	}
	var urls []string
	ids := map[string]bool{got.SPDXID: true}
	for _, one := range got.Packages {
		if ids[one.SPDXID] {
			t.Errorf("the id %s is there twice", one.SPDXID)
		}
		ids[one.SPDXID] = true
		for _, ref := range one.ExternalRefs {
			urls = append(urls, ref.Locator)
		}
	}
	for _, url := range want {
		if !slices.Contains(urls, url) {
			t.Errorf("it does not name %s", url)
		}
	}
	related := map[string]bool{}
	for _, one := range got.Relationships {
		if !ids[one.Element] || !ids[one.Related] {
			t.Errorf("%s %s %s relates what is not there", one.Element, one.Type, one.Related)
		}
		related[one.Related] = true
	}
	for _, one := range got.Packages {
		if !related[one.SPDXID] {
			t.Errorf("%s (%s) is related to nothing", one.SPDXID, one.Name)
		}
	}
	if got.Name != "merchant-operator 1.2.3 for linux/amd64" || !strings.HasPrefix(got.DocumentNamespace, home) {
		t.Errorf("it is %q in %q", got.Name, got.DocumentNamespace)
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

// staticBinary is a hand-made ELF file of x86-64: a header and no program.
func staticBinary() []byte {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20] = 2, 62, 1 // executable, x86-64, version 1
	header[52], header[54], header[58] = 64, 56, 64
	return header
}
