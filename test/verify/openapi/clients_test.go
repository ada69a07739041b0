package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	_ "github.com/oapi-codegen/runtime" // imported by the generated clients
)

// printed is what the clients print, whatever a later version adds.
const printed = `created ps_abcdefgh2345T2xV9bLrYc8WdNeHq7
session is COMPLETED since 1795246300100
not cancelled
ps_abcdefgh2345T2xV9bLrYc8WdNeHq7 is COMPLETED since 1795246300100
1249 USD go back
500 of 1250 went back
key abcdefgh2345 has generation 2
go on after b
may read: true
take money for Acme Coffee: true
refund: true
`

// Clients that were generated from this version's documents and from the last release's work with this version and with a later one, which has more of
// all that docs/versions.md says it may have more of.
func TestClients(t *testing.T) {
	services := map[string]*httptest.Server{"this version": serve(t, responses), "a later version": serve(t, grown(t))}
	for name, directory := range map[string]string{"this version": repository.Path("apiserver"), "the last release": lastRelease(t)} {
		for language, generate := range map[string]func(*testing.T, string) []string{"Go": goClient, "TypeScript": typeScriptClient} {
			client := generate(t, directory)
			for version, service := range services {
				t.Run(fmt.Sprintf("%s, client of %s, service of %s", language, name, version), func(t *testing.T) {
					if diff := cmp.Diff(printed, run(t, ".", client[0], append(client[1:], service.URL)...)); diff != "" {
						t.Errorf("(-want +printed):\n%s", diff)
					}
				})
			}
		}
	}
}

// A client that validates responses accepts those of a later version, except events of a type that its own document lacks, which it must skip.
func TestClients_Validating(t *testing.T) {
	for key, response := range grown(t) {
		if key == eventsKey {
			response.body = strings.Replace(response.body, grow(laterEvent), "", 1)
		}
		if err := validate(t, openapitest.Open, response); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// What the clients are answered is what the documents of this version say.
func TestClients_Responses(t *testing.T) {
	for key, response := range responses {
		if err := validate(t, openapitest.Closed, response); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// goClient builds testdata/golang/client on packages that oapi-codegen generates. It refuses boolean schemas, which JSON Schema allows, and reads most but
// not all of OpenAPI 3.1.
func goClient(t *testing.T, documents string) (command []string) {
	t.Helper()
	dir, generated := t.TempDir(), map[string]string{}
	for document, name := range map[string]string{openapitest.Public: "publicapi", openapitest.Internal: "internalapi"} {
		file := filepath.Join(dir, name+".go")
		run(t, ".", "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", name, "-o", file, filepath.Join(documents, document))
		generated[filepath.Join("testdata", "golang", name, "client.go")] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": generated})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "client")
	run(t, ".", "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./testdata/golang/client")
	return []string{program}
}

// typeScriptClient compiles typescript/client.mts with the types that openapi-typescript generates.
func typeScriptClient(t *testing.T, documents string) (command []string) {
	t.Helper()
	dir := t.TempDir()
	install(t, "typescript", dir, "tsconfig.json", "client.mts")
	for _, document := range []string{openapitest.Public, openapitest.Internal} {
		run(t, dir, filepath.Join("node_modules", ".bin", "openapi-typescript"), filepath.Join(documents, document),
			"-o", strings.TrimSuffix(document, ".yaml")+".d.ts")
	}
	run(t, dir, filepath.Join("node_modules", ".bin", "tsc"))
	return []string{"node", filepath.Join(dir, "client.mjs")}
}

// response is an answer of the service, which a document describes as a schema.
type response struct {
	document, schema string
	status           int
	errorCode        string
	body             string
}

const (
	id        = "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"
	eventsKey = "GET /api/v1/events"

	session = `"sessionId": "` + id + `", "status": "COMPLETED", "amountCents": 1250, "currency": "EUR", "createdAt": 1795246260000,
		"expiresAt": 1795247160000, "endedAt": 1795246300100, "keyId": "abcdefgh2345"`
	merchant = `"merchant": {"id": "mer_abcdefgh2345", "name": "Acme Coffee"}`
	// laterEvent is an entry of the feed that only a later version has.
	laterEvent = `, {"id": "evt_abcdefgh2345_disputed", "cursor": "b", "event": {"type": "session.disputed", "livemode": true,
		"timestamp": "2026-11-21T09:31:36.000Z", "data": {"dispute": "1250"}}}`
)

// responses are those to the requests of the clients.
var responses = map[string]response{
	"POST /api/v1/sessions": {openapitest.Public, "CreatedSession", http.StatusCreated, "",
		`{"sessionId": "` + id + `", "status": "PENDING", "expiresAt": 1795247160000, "qrPayload": "pay://qr/` + id + `", "idempotent": false}`},
	"GET /api/v1/sessions/" + id: {openapitest.Public, "MerchantSession", http.StatusOK, "", `{` + session + `, "qrPayload": "pay://qr/` + id + `"}`},
	"POST /api/v1/sessions/" + id + "/cancel": {openapitest.Public, "Error", http.StatusConflict, "session_ended",
		`{"error": "session is already COMPLETED"}`},
	eventsKey: {openapitest.Public, "Events", http.StatusOK, "", `{"items": [` + strings.Join([]string{
		item("session.completed", session+`, "paymentRef": "card-1", "sequence": 1, `+merchant),
		item("session.payment_mismatch", session+`, "paymentRef": "card-2", "payment": {"amountCents": 1249, "currency": "USD"}, "sequence": 2, `+merchant),
		item("session.payment_refunded", session+`, "paymentRef": "card-1", "refund": {"refundRef": "refund-1", "amountCents": 500, "currency": "EUR",
			"paymentCents": 1250, "refundedCents": 500}, "sequence": 3, `+merchant),
		item("key.rotated", `"keyId": "abcdefgh2345", "generation": 2, "cause": "API", "rotatedAt": 1795246300100, `+merchant),
	}, ", ") + `], "cursor": "b"}`},
	"GET /api/v1/merchant/me": {openapitest.Public, "Profile", http.StatusOK, "", `{"livemode": true,
		"merchant": {"id": "mer_abcdefgh2345", "name": "Acme Coffee", "status": "Active", "ipAllowlist": [], "currency": "EUR", "timeZone": "Europe/Berlin",
			"rateLimit": {"requestsPerSecond": 50, "burst": 100},
			"sessions": {"lifetimeSeconds": 900, "maxAmountCents": 10000000, "idempotencyMismatch": "Return"}},
		"apiKey": {"id": "abcdefgh2345", "prefix": "mk_live_abcdefgh2345_0123", "generation": 2, "createdAt": 1795160000000, "rotatedAt": 1795246260000,
			"expiresAt": null, "lastUsedAt": null, "permissions": ["create", "read", "cancel"], "ipAllowlist": []}}`},
	"GET /internal/v1/sessions/" + id: {openapitest.Internal, "Session", http.StatusOK, "", `{"sessionId": "` + id + `", "status": "PENDING",
		"amountCents": 1250, "currency": "EUR", "expiresAt": 1795247160000, "payments": [],
		"merchant": {"id": "mer_abcdefgh2345", "displayName": "Acme Coffee", "namespace": "shops", "name": "acme-coffee", "state": "Active"}}`},
	"POST /internal/v1/sessions/" + id + "/settlement": {openapitest.Internal, "Settlement", http.StatusOK, "",
		`{"sessionId": "` + id + `", "status": "EXPIRED", "applied": false, "action": "REFUND_REQUIRED", "endedAt": 1795247160000}`},
}

func item(kind, data string) string {
	return `{"id": "evt_abcdefgh2345", "cursor": "a", "event": {"type": "` + kind + `", "livemode": true, "timestamp": "2026-11-21T09:31:36.000Z", "data": {` +
		data + `}}}`
}

// grown are the responses of a later version: each object has one more field, the feed one more type of event, and lists that may grow another word.
func grown(t *testing.T) map[string]response {
	t.Helper()
	later := map[string]response{}
	for key, response := range responses {
		if key == eventsKey {
			before := response.body
			response.body = strings.Replace(before, `], "cursor"`, laterEvent+`], "cursor"`, 1)
			if response.body == before {
				t.Fatal("the feed has no place for another event")
			}
		}
		if response.errorCode != "" {
			response.errorCode = "session_settled"
		}
		response.body = grow(response.body)
		later[key] = response
	}
	return later
}

// grow adds a field to each object, and another word to lists that may grow.
func grow(body string) string {
	return strings.NewReplacer(`{`, `{"added": {"to": ["every", "object"]}, `, `"API"`, `"Console"`, `"Return"`, `"Replace"`, `["create",`, `["payout", "create",`).
		Replace(body)
}

func serve(t *testing.T, responses map[string]response) *httptest.Server {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		response, known := responses[request.Method+" "+request.URL.Path]
		if !known {
			t.Errorf("%s %s has no response", request.Method, request.URL)
			response.status = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "application/json")
		if response.errorCode != "" {
			w.Header().Set("Error-Code", response.errorCode)
		}
		w.WriteHeader(response.status)
		_, _ = w.Write([]byte(response.body))
	}))
	t.Cleanup(service.Close)
	return service
}

func validate(t *testing.T, load func(string) (*openapi3.T, error), response response) error {
	t.Helper()
	document, err := load(response.document)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal([]byte(response.body), &value); err != nil {
		t.Fatalf("%s: %v", response.body, err)
	}
	return document.Components.Schemas[response.schema].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}
