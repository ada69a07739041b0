package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// TestSBOM describes an image whose program is this test, which is built of many modules as well.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	archive := filepath.Join(directory, "image.tar")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	image := oci.Image{
		Platform: oci.Platform{OS: "linux", Architecture: "arm64"}, Created: time.Unix(0, 0),
		Files: []oci.File{
			{Path: "/etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Content: []byte("certificates")},
			{Path: "/merchant-operator", Mode: 0o755, Content: read(t, self)},
		},
	}
	if err := oci.Write(file, "example.com/merchant-operator:v1", []oci.Image{image}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeSBOMs(t.Context(), "1.2.3", archive, directory); err != nil {
		t.Fatal(err)
	}

	var got document
	if err := json.Unmarshal(read(t, filepath.Join(directory, "sbom-linux-arm64.spdx.json")), &got); err != nil {
		t.Fatal(err)
	}
	urls, ids := map[string]bool{}, map[string]bool{got.SPDXID: true}
	for _, one := range got.Packages {
		if ids[one.SPDXID] {
			t.Errorf("the id %s is there twice", one.SPDXID)
		}
		ids[one.SPDXID] = true
		for _, ref := range one.ExternalRefs {
			urls[ref.Locator] = true
		}
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) < 10 {
		t.Fatalf("this test has %d modules, too few to be a test", len(info.Deps))
	}
	for _, module := range info.Deps {
		if url := "pkg:golang/" + module.Path + "@" + strings.ReplaceAll(module.Version, "+", "%2B"); !urls[url] {
			t.Errorf("it does not name %s", url)
		}
	}
	if !urls["pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go")] {
		t.Errorf("it does not name the standard library of %s", info.GoVersion)
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
	if want := "merchant-operator 1.2.3 for linux/arm64"; got.Name != want || !strings.HasPrefix(got.DocumentNamespace, home) {
		t.Errorf("it is %q in %q, want %q", got.Name, got.DocumentNamespace, want)
	}
}
