package openapi

import (
	"encoding/json"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// What a field is may depend on another; the documents say so without the boolean schemas that generators refuse.
func TestTheSchemasShowFieldsThatGoTogether(t *testing.T) {
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
