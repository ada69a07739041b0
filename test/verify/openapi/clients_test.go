// Package openapi lints the OpenAPI documents, and generates clients from them with the generators that integrators use, and compiles them.
package openapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// documents are the public and the internal one, and the Go packages made of them.
var documents = map[string]string{"openapi": "publicapi", "internal-openapi": "internalapi"}

// oapi-codegen refuses boolean schemas, which JSON Schema allows, and reads most but not all of OpenAPI 3.1.
func TestAGoClientIsGeneratedAndCompiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "runtime.go"} {
		copyFile(t, filepath.Join("golang", name), filepath.Join(dir, name))
	}
	copyFile(t, filepath.Join("golang", "testdata", "use", "use.go"), filepath.Join(dir, "use", "use.go"))
	for document, name := range documents {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", name,
			"-o", filepath.Join(name, "client.go"), repository.Path("apiserver", document+".yaml"))
	}
	run(t, dir, "go", "vet", "./...")
}

func TestATypeScriptClientIsGeneratedAndCompiles(t *testing.T) {
	dir := t.TempDir()
	install(t, "typescript", dir, "tsconfig.json", "use.ts")
	for document := range documents {
		run(t, dir, filepath.Join("node_modules", ".bin", "openapi-typescript"), repository.Path("apiserver", document+".yaml"), "-o", document+".d.ts")
	}
	run(t, dir, filepath.Join("node_modules", ".bin", "tsc"))
}

// install copies files of a directory with a package.json, and installs its packages.
func install(t *testing.T, from, dir string, files ...string) {
	t.Helper()
	for _, name := range append([]string{"package.json", "package-lock.json", ".npmrc"}, files...) {
		copyFile(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Fatalf("this test needs Node.js with npm: %v; run `hack/install.sh nodejs` to install them", err)
	}
	run(t, dir, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
}
