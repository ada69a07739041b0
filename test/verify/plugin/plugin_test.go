// Package plugin checks the archives and the krew manifest of kubectl merchant, as a release makes them.
package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
	"sigs.k8s.io/yaml"
)

// manifest is what krew reads.
type manifest struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   struct{ Name string } `json:"metadata"`
	Spec       struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Platforms        []struct {
			Selector struct {
				MatchLabels struct{ OS, Arch string } `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

const tag = "v1.2.3"

// Krew downloads the archive of the manifest, compares its checksum, unpacks it and links the program.
func TestArchive_MatchesManifest(t *testing.T) {
	out := t.TempDir()
	script := exec.CommandContext(t.Context(), repository.Path("hack", "release", "plugin.sh"), tag, out, runtime.GOOS+"/"+runtime.GOARCH)
	if text, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := os.ReadFile(filepath.Join(out, "merchant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	const longest = 50 // of krew's index
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "merchant" || m.Spec.Version != tag ||
		m.Spec.ShortDescription == "" || len(m.Spec.ShortDescription) > longest || m.Spec.Description == "" || len(m.Spec.Platforms) != 1 {
		t.Fatalf("the manifest is\n%s", text)
	}
	platform := m.Spec.Platforms[0]
	archive := "kubectl-merchant_" + tag + "_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
	if platform.Selector.MatchLabels.OS != runtime.GOOS || platform.Selector.MatchLabels.Arch != runtime.GOARCH ||
		platform.URI != "https://github.com/merchant-operator/merchant-operator/releases/download/"+tag+"/"+archive {
		t.Errorf("the platform is %+v", platform)
	}
	content, err := os.ReadFile(filepath.Join(out, archive))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != platform.SHA256 {
		t.Error("the checksum is of another archive")
	}
	if text, err := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(out, archive), "-C", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Setenv("PATH", out+":"+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	for command, want := range map[string]string{
		platform.Bin + " version --client":                "Client   " + tag,
		"kubectl merchant version --client":               "Client   " + tag,
		"kubectl __complete merchant keys re 2>/dev/null": "reveal",
	} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %v\n%s", command, err, got)
		}
	}
}

// What assemble.sh makes is on the release page, and its checksums are attested.
func TestRelease_HasPlugin(t *testing.T) {
	assemble := repository.Read(t, "hack", "release", "assemble.sh")
	workflow := repository.Read(t, ".github", "workflows", "release.yml")
	if !strings.Contains(assemble, `hack/release/plugin.sh "$tag" "$out"`) || !regexp.MustCompile(`sha256sum .*\./\*\.tar\.gz .*merchant\.yaml`).MatchString(assemble) {
		t.Error("assemble.sh does not make the plugin, or not its checksums")
	}
	if !regexp.MustCompile(`(?s)gh release create.*\./\*\.tar\.gz .*merchant\.yaml`).MatchString(workflow) {
		t.Error("release.yml does not upload the plugin")
	}
}
