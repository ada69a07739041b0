package deadletters_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/deadletters"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func (f fixture) list(t *testing.T, options deadletters.ListOptions) string {
	t.Helper()
	options.RedisURL = f.url
	options.Output = cmp.Or(options.Output, deadletters.OutputTable)
	var out strings.Builder
	must(t, deadletters.List(t.Context(), options, &out))
	return out.String()
}

func TestList(t *testing.T) {
	f := newFixture(t)
	if got := f.list(t, deadletters.ListOptions{}); got != "FAILED AT  ID  KIND  MERCHANT  ATTEMPTS  LAST ANSWER  REASON\n" {
		t.Errorf("of none: %q", got)
	}
	if got := strings.TrimSpace(f.list(t, deadletters.ListOptions{Output: deadletters.OutputJSON})); got != "[]" {
		t.Errorf("of none, as JSON: %s", got)
	}
	acme, bagels := storetest.Merchant(), storetest.Merchant()
	first, other := f.deadLetter(t, acme), f.deadLetter(t, bagels)

	table := f.list(t, deadletters.ListOptions{Output: deadletters.OutputTable})
	for _, word := range []string{first, other, "shops/" + acme.MerchantID, "shops/" + bagels.MerchantID, "session.cancelled", "503", "status_5xx"} {
		if !strings.Contains(table, word) {
			t.Errorf("the table has no %s:\n%s", word, table)
		}
	}
	for _, id := range []string{acme.MerchantID, "mer_" + acme.MerchantID, "shops/" + acme.MerchantID} {
		if listed := f.list(t, deadletters.ListOptions{Merchant: id}); !strings.Contains(listed, first) || strings.Contains(listed, other) {
			t.Errorf("of %s:\n%s", id, listed)
		}
	}
	var letters []map[string]any
	if err := json.Unmarshal([]byte(f.list(t, deadletters.ListOptions{Merchant: acme.MerchantID, Output: deadletters.OutputJSON})), &letters); err != nil || len(letters) != 1 {
		t.Fatalf("as JSON: %v, %v", letters, err)
	}
	for name, want := range map[string]string{
		"id": first, "merchantId": "mer_" + acme.MerchantID, "merchant": "shops/" + acme.MerchantID, "reason": "status_5xx", "lastAnswer": "503",
	} {
		if letters[0][name] != want {
			t.Errorf("as JSON, %s is %v, want %s", name, letters[0][name], want)
		}
	}
	if letters[0]["sessionId"] == nil {
		t.Errorf("as JSON, without a session: %v", letters[0])
	}
	if got := strings.Count(f.list(t, deadletters.ListOptions{Limit: 1}), "\n"); got != 2 {
		t.Errorf("limited to one: %d lines", got)
	}
}

func TestListOptions_Invalid(t *testing.T) {
	const url = "redis://127.0.0.1:1"
	for want, options := range map[string]deadletters.ListOptions{
		"--output must be table or json, not \"yaml\"": {RedisURL: url, Output: "yaml"},
		"--limit must be at least 1, or 0 for all":     {RedisURL: url, Output: deadletters.OutputTable, Limit: -1},
		"--merchant must be NAMESPACE/NAME":            {RedisURL: url, Output: deadletters.OutputTable, Merchant: "acme"},
		"set --redis-url or REDIS_URL":                 {Output: deadletters.OutputTable},
	} {
		if err := options.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", options, err, want)
		}
	}
}
