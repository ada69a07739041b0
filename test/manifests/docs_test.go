package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var codeBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Readers copy what the pages show, so the API server is asked whether it takes it.
func TestManifestsInTheDocsAreAccepted(t *testing.T) {
	apply(t, "crd")
	apply(t, "samples") // for its namespace
	for _, page := range []string{"merchant.md", "apikey.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		manifests := 0
		for _, block := range codeBlock.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(block[1], "apiVersion:") {
				continue // a fragment
			}
			manifests++
			file := filepath.Join(t.TempDir(), "manifest.yaml")
			if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			kubectl(t, "apply", "--dry-run=server", "-f", file)
		}
		if manifests < 2 {
			t.Errorf("docs/%s shows %d manifests, want the smallest and the full one", page, manifests)
		}
	}
}
