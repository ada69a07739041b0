package openapi

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// released has a directory for each release with its documents, which never change. 0.0.0 stands for the last release until there is one.
var released = repository.Path("apiserver", "testdata", "openapi")

// lastRelease is the directory of the last release's documents.
func lastRelease(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(released)
	if err != nil {
		t.Fatal(err)
	}
	var last *semver.Version
	for _, entry := range entries {
		version, err := semver.StrictNewVersion(entry.Name())
		if err != nil {
			t.Fatalf("%s: a directory is named after its release: %v", filepath.Join(released, entry.Name()), err)
		}
		if last == nil || version.GreaterThan(last) {
			last = version
		}
	}
	return filepath.Join(released, last.String())
}

// The documents of each release are kept, so that its successor is compared with them.
func TestReleased_EveryReleaseIsKept(t *testing.T) {
	for _, heading := range regexp.MustCompile(`(?m)^## \[(\d[^]]*)]`).FindAllStringSubmatch(repository.Read(t, "CHANGELOG.md"), -1) {
		for _, document := range []string{openapitest.Public, openapitest.Internal} {
			if _, err := os.Stat(filepath.Join(released, heading[1], document)); err != nil {
				t.Errorf("%s has no document; see \"Releases\" in CONTRIBUTING.md: %v", heading[1], err)
			}
		}
	}
}

// A client of the last release works with this version.
func TestReleased_NothingBreaks(t *testing.T) {
	for _, document := range []string{openapitest.Public, openapitest.Internal} {
		for _, change := range breakingChanges(t, filepath.Join(lastRelease(t), document), current(document)) {
			t.Errorf("%s breaks clients of the last release; see docs/versions.md: %s", document, change)
		}
	}
}

// A change that docs/versions.md rules out is refused; one that it allows is not.
func TestBreakingChanges(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		// edits are texts of the document, each followed by what replaces it.
		edits  []string
		breaks bool
	}{
		"a field of a response is removed": {openapitest.Public, []string{
			"        paymentRef:\n          description: The payment network's reference of the payment that completed or failed the session.\n",
			"        paymentReference:\n          description: The payment network's reference of the payment that completed or failed the session.\n",
		}, true},
		"a required field of a response is removed":       {openapitest.Public, []string{"required: [sessions, more]", "required: [sessions]", "        more:\n", "        others:\n"}, true},
		"a field of a response may be absent":             {openapitest.Public, []string{"required: [merchantName, amountCents, status]", "required: [merchantName, status]"}, true},
		"a field of an event is removed":                  {openapitest.Public, []string{"        refund: {$ref: '#/components/schemas/ConfirmedRefund'}\n", ""}, true},
		"a field of an event may be absent":               {openapitest.Public, []string{"required: [refundRef, amountCents, currency, paymentCents, refundedCents]", "required: [refundRef, currency, paymentCents, refundedCents]"}, true},
		"a type of event is removed":                      {openapitest.Public, []string{"        - {$ref: '#/components/schemas/KeyRotatedEvent'}\n", "", "          key.rotated: '#/components/schemas/KeyRotatedEvent'\n", ""}, true},
		"a header of a webhook is removed":                {openapitest.Public, []string{"name: webhook-id", "name: webhook-key"}, true},
		"the webhook is removed":                          {openapitest.Public, []string{"webhooks:\n  event:\n", "webhooks:\n  message:\n"}, true},
		"a header of a response is removed":               {openapitest.Public, []string{"            Idempotent-Replayed:\n", "            Replayed:\n"}, true},
		"a session gets another status":                   {openapitest.Public, []string{"enum: [PENDING, COMPLETED, FAILED, EXPIRED, CANCELLED]", "enum: [PENDING, COMPLETED, FAILED, EXPIRED, CANCELLED, REFUNDED]"}, true},
		"a request needs another field":                   {openapitest.Public, []string{"required: [amountCents]", "required: [amountCents, orderRef]"}, true},
		"a request needs another parameter":               {openapitest.Public, []string{"        - name: limit\n          in: query\n", "        - name: limit\n          required: true\n          in: query\n"}, true},
		"an amount is refused":                            {openapitest.Public, []string{"charge, in cents.\n          type: integer\n          minimum: 1\n          maximum: 10000000\n", "charge, in cents.\n          type: integer\n          minimum: 1\n          maximum: 9999999\n"}, true},
		"a path is removed":                               {openapitest.Public, []string{"  /api/v1/merchant/me:\n", "  /api/v1/merchant/profile:\n"}, true},
		"a rail must do something else":                   {openapitest.Internal, []string{"const: REFUND_REQUIRED", "const: REFUND"}, true},
		"a report has fewer outcomes":                     {openapitest.Internal, []string{"          enum: [COMPLETED, FAILED]\n", "          enum: [COMPLETED]\n"}, true},
		"a response has another field":                    {openapitest.Public, []string{"    PublicSession:\n      type: object\n      required: [merchantName, ", "    PublicSession:\n      type: object\n      required: [currency, merchantName, ", "        merchantName: {", "        currency: {type: string}\n        merchantName: {"}, false},
		"a request may have another field":                {openapitest.Public, []string{"        customerEmail:\n", "        locale: {type: string}\n        customerEmail:\n"}, false},
		"an event always has another field":               {openapitest.Public, []string{"expiresAt, keyId, sequence, merchant]\n      properties:\n", "expiresAt, keyId, sequence, merchant, locale]\n      properties:\n        locale: {type: string}\n"}, false},
		"another type of event":                           {openapitest.Public, anotherType, false},
		"another word of an extensible list":              {openapitest.Public, []string{"[API, Trigger, Schedule, Recovery]", "[API, Trigger, Schedule, Recovery, Console]"}, false},
		"another Error-Code":                              {openapitest.Public, []string{"[session_ended, ", "[session_disputed, session_ended, "}, false},
		"another path":                                    {openapitest.Public, []string{"  /api/v1/merchant/me:\n", "  /api/v1/merchant/you:\n    get:\n      responses:\n        '204': {description: Nothing.}\n  /api/v1/merchant/me:\n"}, false},
		"another field of the internal API, and its word": {openapitest.Internal, []string{"[Active, Suspended, Closed, Deleted]", "[Active, Suspended, Closed, Deleted, Restricted]", "        displayName:\n", "        locale: {type: string}\n        displayName:\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := repository.Read(t, "apiserver", test.document)
			for i := 0; i < len(test.edits); i += 2 {
				if !strings.Contains(text, test.edits[i]) {
					t.Fatalf("the document has no %q", test.edits[i])
				}
				text = strings.Replace(text, test.edits[i], test.edits[i+1], 1)
			}
			changed := filepath.Join(t.TempDir(), test.document)
			if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			changes := breakingChanges(t, current(test.document), changed)
			if (len(changes) > 0) != test.breaks {
				t.Errorf("breaks clients: %t, want %t: %q", len(changes) > 0, test.breaks, changes)
			}
		})
	}
}

// anotherType adds a type to Event.
var anotherType = []string{
	"        - {$ref: '#/components/schemas/WebhookTestEvent'}\n",
	"        - {$ref: '#/components/schemas/WebhookTestEvent'}\n        - {$ref: '#/components/schemas/SessionDisputedEvent'}\n",
	"          webhook.test: '#/components/schemas/WebhookTestEvent'\n",
	"          webhook.test: '#/components/schemas/WebhookTestEvent'\n          session.disputed: '#/components/schemas/SessionDisputedEvent'\n",
	"    WebhookTestEvent:\n",
	"    SessionDisputedEvent:\n      type: object\n      required: [type]\n      properties:\n        type: {type: string, const: session.disputed}\n    WebhookTestEvent:\n",
}

// severities are where v1 promises something else than oasdiff assumes.
const severities = `response-optional-property-removed err
optional-response-header-removed err
response-property-one-of-added info
response-property-one-of-removed err
`

// accepted are changes that oasdiff takes for breaking, as it cannot know which request gets which
// response, and which requests are made.
var accepted = []string{
	// Only who sends the outcome REJECTED, which no client of before does, gets the other one.
	"POST /internal/v1/sessions/{sessionId}/refunds: response-body-wrapped-in-one-of-original-preserved",
	// A time before 2020 was one in seconds, by mistake: a list of it was empty, and a payment of 1970.
	"GET /api/v1/sessions: request-parameter-min-increased",
	"POST /api/v1/test/sessions/{sessionId}/settle: request-property-min-increased",
	"POST /internal/v1/sessions/{sessionId}/settlement: request-property-min-increased",
}

// breakingChanges says what in the second document breaks a client of the first one.
func breakingChanges(t *testing.T, before, after string) (breaking []string) {
	t.Helper()
	levels := filepath.Join(t.TempDir(), "severities.txt")
	if err := os.WriteFile(levels, []byte(severities), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "-C", repository.Path("hack", "oasdiff"), "tool", "oasdiff", "breaking", "--format=json", "--severity-levels="+levels, before, after)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	var changes []struct {
		ID        string `json:"id"`
		Text      string `json:"text"`
		Operation string `json:"operation"`
		Path      string `json:"path"`
	}
	if err := json.Unmarshal(output, &changes); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	for _, change := range changes {
		// oasdiff reads a webhook as a request to the service, whose new field would be a demand. The feed has the same events, as a response.
		if strings.HasPrefix(change.Path, "webhook:") && change.ID != "request-parameter-removed" {
			continue
		}
		if slices.Contains(accepted, fmt.Sprintf("%s %s: %s", change.Operation, change.Path, change.ID)) {
			continue
		}
		breaking = append(breaking, fmt.Sprintf("%s %s: %s (%s)", change.Operation, change.Path, change.Text, change.ID))
	}
	return breaking
}
