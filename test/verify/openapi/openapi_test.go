// Package openapi lints the OpenAPI documents, compares them with the last release's, and runs clients that the generators of integrators make of them.
package openapi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The documents have nothing that the two usual linters warn about with their own rules.
func TestLint(t *testing.T) {
	dir := t.TempDir()
	install(t, "lint", dir, "redocly.mjs", ".spectral.yaml")
	files := []string{current(openapitest.Public), current(openapitest.Internal)}
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
		{openapitest.Public, "MerchantSession", pending + session, true},
		{openapitest.Public, "MerchantSession", pending + session + `,"endedAt":1795247000000`, false},
		{openapitest.Public, "MerchantSession", pending + session + `,"paymentRef":"card-1"`, false},
		{openapitest.Public, "MerchantSession", pending + session + `,"reason":"declined"`, false},
		{openapitest.Public, "MerchantSession", ended + session, false},
		{openapitest.Public, "MerchantSession", ended + session + `,"endedAt":1795247000000,"paymentRef":"card-1"`, true},
		{openapitest.Internal, "Settlement", pending + `,"applied":false,"action":"REFUND_REQUIRED"`, true},
		{openapitest.Internal, "Settlement", pending + `,"applied":false,"endedAt":1795247000000`, false},
		{openapitest.Internal, "Settlement", pending + `,"applied":true`, false},
		{openapitest.Internal, "Settlement", ended + `,"applied":true,"endedAt":1795247000000`, true},
		{openapitest.Internal, "Settlement", ended + `,"applied":true,"endedAt":1795247000000,"action":"REFUND_REQUIRED"`, false},
		{openapitest.Internal, "Settlement", ended + `,"applied":true`, false},
	} {
		loaded, err := openapitest.Open(test.document)
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

// current is the path of a document of this version.
func current(document string) string { return repository.Path("apiserver", document) }

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

// run returns what a command prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return string(output)
}
