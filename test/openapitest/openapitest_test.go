package openapitest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/merchant-operator/merchant-operator/test/openapitest"
)

const (
	session = `{"sessionId":"ps_qrstuvwxyz23X7pL1vB8nR3tY6wZaa","status":"COMPLETED","amountCents":1250,"currency":"EUR","createdAt":1795252500000,` +
		`"expiresAt":1795253400000,"endedAt":1795253400000,"keyId":"tillkey23456","sequence":1,"merchant":{"id":"mer_qrstuvwxyz23","name":"Acme Coffee"}}`
	completed = `{"type":"session.completed","livemode":true,"timestamp":"2026-11-21T09:45:00.005Z","data":` + session + `}`
	rotated   = `{"type":"key.rotated","livemode":true,"timestamp":"2026-11-21T09:45:00.005Z","data":{"keyId":"tillkey23456","generation":2,"cause":"API",` +
		`"rotatedAt":1795253400000,"merchant":{"id":"mer_qrstuvwxyz23","name":"Acme Coffee"}}}`
	payee = `{"id":"mer_qrstuvwxyz23","displayName":"Acme Coffee","state":"Active"}`
)

// What a client must accept of a later version, and a test must not of this one.
func TestClosed_RefusesAdditions(t *testing.T) {
	for name, test := range map[string]struct {
		file, schema, value, addition string
	}{
		"a field":                         {openapitest.Public, "Error", `{"error":"no"}`, `{"error":"no","added":1}`},
		"a field of an event's data":      {openapitest.Public, "Event", completed, strings.Replace(completed, `{"sessionId"`, `{"added":1,"sessionId"`, 1)},
		"a field of an event":             {openapitest.Public, "Event", completed, strings.Replace(completed, `{`, `{"added":1,`, 1)},
		"a field deep in an event":        {openapitest.Public, "Event", completed, strings.Replace(completed, `"name"`, `"added":1,"name"`, 1)},
		"a field of an event in the feed": {openapitest.Public, "Events", feed(completed), feed(strings.Replace(completed, `{`, `{"added":1,`, 1))},
		"a word of an extensible list":    {openapitest.Public, "Event", rotated, strings.Replace(rotated, `"API"`, `"Added"`, 1)},
		"a field of the internal API":     {openapitest.Internal, "Payee", payee, strings.Replace(payee, `{`, `{"added":1,`, 1)},
		"a word of the internal API":      {openapitest.Internal, "Payee", payee, strings.Replace(payee, `"Active"`, `"Added"`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			open, closed := load(t, openapitest.Open, test.file), load(t, openapitest.Closed, test.file)
			if err := visit(t, closed, test.schema, test.value); err != nil {
				t.Errorf("the closed document refuses %s: %v", test.value, err)
			}
			if visit(t, closed, test.schema, test.addition) == nil {
				t.Errorf("the closed document accepts %s", test.addition)
			}
			if err := visit(t, open, test.schema, test.addition); err != nil {
				t.Errorf("the published document refuses %s: %v", test.addition, err)
			}
		})
	}
}

// The type of an event decides what its data has.
func TestOpen_EventByType(t *testing.T) {
	document := load(t, openapitest.Open, openapitest.Public)
	for name, value := range map[string]string{
		"an end without its time":       strings.Replace(completed, `"endedAt":1795253400000,`, "", 1),
		"a refund without one":          strings.Replace(completed, "session.completed", "session.payment_refunded", 1),
		"a late payment without one":    strings.Replace(completed, "session.completed", "session.late_payment", 1),
		"a rotation with a session":     strings.Replace(completed, "session.completed", "key.rotated", 1),
		"a session with a rotation":     strings.Replace(rotated, "key.rotated", "session.completed", 1),
		"an amount that is no number":   strings.Replace(completed, `"amountCents":1250`, `"amountCents":"1250"`, 1),
		"a status that v1 has not":      strings.Replace(completed, `"COMPLETED"`, `"REFUNDED"`, 1),
		"a test of the endpoint's data": strings.Replace(rotated, "key.rotated", "webhook.test", 1),
	} {
		if visit(t, document, "Event", value) == nil {
			t.Errorf("%s is valid: %s", name, value)
		}
	}
}

// Clients that validate responses would refuse whatever is added to a closed object.
func TestOpen_NoObjectIsClosed(t *testing.T) {
	for _, file := range []string{openapitest.Public, openapitest.Internal} {
		document := load(t, openapitest.Open, file)
		err := document.WalkSchemas(func(pointer string, ref *openapi3.SchemaRef) error {
			if has := ref.Value.AdditionalProperties.Has; has != nil && !*has {
				t.Errorf("%s: %s is closed", file, pointer)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func feed(event string) string {
	return `{"items":[{"id":"evt_1","cursor":"a","event":` + event + `}],"cursor":"a"}`
}

func load(t *testing.T, load func(string) (*openapi3.T, error), file string) *openapi3.T {
	t.Helper()
	document, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func visit(t *testing.T, document *openapi3.T, schema, text string) error {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return document.Components.Schemas[schema].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}
