// Package openapi lints the OpenAPI documents, and generates clients from them with the generators that integrators use, and compiles them.
package openapi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/merchant-operator/merchant-operator/test/repository"
	_ "github.com/oapi-codegen/runtime" // imported by the generated clients
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

// What a field is may depend on another; the documents say so without the boolean schemas that generators refuse.
func TestSchemas_FieldsThatGoTogether(t *testing.T) {
	const (
		pending = `"sessionId":"ps_abcdefgh2345T2xV9bLrYc8WdNeHq7","status":"PENDING"`
		ended   = `"sessionId":"ps_abcdefgh2345T2xV9bLrYc8WdNeHq7","status":"COMPLETED"`
		session = `,"amountCents":1250,"currency":"EUR","keyId":"abcdefgh2345","createdAt":1795246260000,"expiresAt":1795247160000,"qrPayload":"pay://qr/ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"`
	)
	for _, test := range []struct {
		document, schema, value string
		valid                   bool
	}{
		{"openapi", "MerchantSession", pending + session, true},
		{"openapi", "MerchantSession", pending + session + `,"endedAt":1795247000000`, false},
		{"openapi", "MerchantSession", pending + session + `,"paymentRef":"card-1"`, false},
		{"openapi", "MerchantSession", pending + session + `,"reason":"declined"`, false},
		{"openapi", "MerchantSession", ended + session, false},
		{"openapi", "MerchantSession", ended + session + `,"endedAt":1795247000000,"paymentRef":"card-1"`, true},
		{"internal-openapi", "Settlement", pending + `,"applied":false,"action":"REFUND_REQUIRED"`, true},
		{"internal-openapi", "Settlement", pending + `,"applied":false,"endedAt":1795247000000`, false},
		{"internal-openapi", "Settlement", pending + `,"applied":true`, false},
		{"internal-openapi", "Settlement", ended + `,"applied":true,"endedAt":1795247000000`, true},
		{"internal-openapi", "Settlement", ended + `,"applied":true,"endedAt":1795247000000,"action":"REFUND_REQUIRED"`, false},
		{"internal-openapi", "Settlement", ended + `,"applied":true`, false},
	} {
		loaded, err := openapi3.NewLoader().LoadFromFile(repository.Path("apiserver", test.document+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal([]byte("{"+test.value+"}"), &value); err != nil {
			t.Fatal(err)
		}
		err = loaded.Components.Schemas[test.schema].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
		if (err == nil) != test.valid {
			t.Errorf("a %s of %s is valid: %v, want %v: %v", test.schema, test.value, err == nil, test.valid, err)
		}
	}
}

// clients is the folder in which the generated packages are seen, and what an integrator writes on top of them.
const clients = "testdata/golang"

// documents are the public and the internal one, and the Go packages generated from them.
var documents = map[string]string{"openapi": "publicapi", "internal-openapi": "internalapi"}

// oapi-codegen refuses boolean schemas, which JSON Schema allows, and reads most but not all of OpenAPI 3.1.
func TestGoClient_Compiles(t *testing.T) {
	dir, generated := t.TempDir(), map[string]string{}
	for document, name := range documents {
		file := filepath.Join(dir, name+".go")
		run(t, ".", "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", name, "-o", file, repository.Path("apiserver", document+".yaml"))
		generated[filepath.Join(clients, name, "client.go")] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": generated})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "./"+clients+"/use")
}

func TestTypeScriptClient_Compiles(t *testing.T) {
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
