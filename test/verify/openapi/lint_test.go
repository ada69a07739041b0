package openapi

import (
	"path/filepath"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The documents have nothing that the two usual linters warn about with their own rules.
func TestLint(t *testing.T) {
	dir := t.TempDir()
	install(t, "lint", dir, "redocly.mjs", ".spectral.yaml")
	var files []string
	for document := range documents {
		files = append(files, repository.Path("apiserver", document+".yaml"))
	}
	run(t, dir, "node", append([]string{"redocly.mjs"}, files...)...)
	run(t, dir, filepath.Join("node_modules", ".bin", "spectral"), append([]string{"lint", "--fail-severity=hint"}, files...)...)
}
