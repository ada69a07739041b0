package published_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// secretWord stands for content no error may quote.
const secretWord = "hunter2"

// set is one field of a record, by its path, and the value it is given; nil removes the field.
type set struct {
	path  string
	value any
}

func TestDecodeKeyRefuses(t *testing.T) {
	for desc, change := range map[string]set{
		"a missing version":             {"version", nil},
		"a version of zero":             {"version", 0},
		"a newer version":               {"version", 2},
		"a version that is text":        {"version", secretWord},
		"no key id":                     {"keyID", nil},
		"a key id that is none":         {"keyID", secretWord},
		"a key id of another object":    {"keyID", "zzzzzzzz2345"},
		"a key id that is a number":     {"keyID", 7},
		"no merchant id":                {"merchantID", nil},
		"a merchant id that is none":    {"merchantID", secretWord},
		"a shown merchant id":           {"merchantID", "mer_merchant2345"},
		"no source":                     {"source", nil},
		"a source without a namespace":  {"source.namespace", nil},
		"a source without a name":       {"source.name", nil},
		"a source without a uid":        {"source.uid", nil},
		"no generation":                 {"generation", nil},
		"a generation of zero":          {"generation", 0},
		"a negative generation":         {"generation", -1},
		"a generation beyond Lua's":     {"generation", 1 << 53},
		"a fraction of a generation":    {"generation", 1.5},
		"a generation that is text":     {"generation", secretWord},
		"no revision":                   {"revision", nil},
		"a revision of zero":            {"revision", 0},
		"a revision beyond Lua's":       {"revision", 1 << 53},
		"no current key":                {"current", nil},
		"no current digest":             {"current.digest", nil},
		"a digest that is none":         {"current.digest", secretWord},
		"a digest in upper case":        {"current.digest", strings.Repeat("A", 64)},
		"a digest of zeros":             {"current.digest", strings.Repeat("0", 64)},
		"no time of creation":           {"current.createdAt", nil},
		"a time that is none":           {"current.createdAt", secretWord},
		"no state":                      {"state", nil},
		"an unknown state":              {"state", secretWord},
		"a merchant's state":            {"state", "Suspended"},
		"an expiry that is none":        {"expiresAt", secretWord},
		"no last rotation":              {"lastRotation", nil},
		"a last rotation without time":  {"lastRotation.time", nil},
		"a last rotation without cause": {"lastRotation.cause", nil},
		"previous that is no list":      {"previous", secretWord},
		"a previous without a digest":   {"previous", []any{map[string]any{"validUntil": issued}}},
		"a previous without an end":     {"previous", []any{map[string]any{"digest": strings.Repeat("a", 64)}}},
		"an empty previous":             {"previous", []any{nil}},
		"too many previous":             {"previous", tooManyPrevious()},
		"a handled digest that is none": {"handledDigest", secretWord},
		"a handled digest of zeros":     {"handledDigest", strings.Repeat("0", 64)},
	} {
		t.Run(desc, func(t *testing.T) {
			secret, err := published.EncodeKey(credentials, keyRecord())
			if err != nil {
				t.Fatal(err)
			}
			secret.Data["record.json"] = changed(t, secret.Data["record.json"], change)
			_, err = published.DecodeKey(secret)
			assertRefused(t, err)
		})
	}
}

func TestDecodeMerchantRefuses(t *testing.T) {
	for desc, change := range map[string]set{
		"a missing version":             {"version", nil},
		"a newer version":               {"version", 2},
		"no merchant id":                {"merchantID", nil},
		"a merchant id that is none":    {"merchantID", secretWord},
		"a merchant id of another":      {"merchantID", "zzzzzzzz2345"},
		"no namespace":                  {"namespace", nil},
		"no name":                       {"name", nil},
		"no display name":               {"displayName", nil},
		"no currency":                   {"currency", nil},
		"a currency that is none":       {"currency", secretWord},
		"a currency in lower case":      {"currency", "eur"},
		"no state":                      {"state", nil},
		"an unknown state":              {"state", secretWord},
		"a key's state":                 {"state", "Disabled"},
		"no rate limit":                 {"rateLimit", nil},
		"a rate of zero":                {"rateLimit.requestsPerSecond", 0},
		"a rate beyond its type":        {"rateLimit.requestsPerSecond", 1 << 40},
		"a negative burst":              {"rateLimit.burst", -1},
		"no session settings":           {"sessions", nil},
		"a lifetime of zero":            {"sessions.lifetimeSeconds", 0},
		"a lifetime that is text":       {"sessions.lifetimeSeconds", secretWord},
		"no mismatch policy":            {"sessions.idempotencyMismatch", nil},
		"an unknown mismatch policy":    {"sessions.idempotencyMismatch", secretWord},
		"a webhook without a URL":       {"webhook.url", nil},
		"a removed webhook with a URL":  {"webhook.removedAt", "2026-11-21T09:30:00Z"},
		"a webhook that is text":        {"webhook", secretWord},
		"an unknown allowlist mode":     {"ipAllowlistMode", secretWord},
		"an allowlist that is text":     {"ipAllowlist", "203.0.113.0/24"},
		"an empty entry":                {"ipAllowlist", []any{""}},
		"an entry that is a hostname":   {"ipAllowlist", []any{"203.0.113.0/24", secretWord}},
		"an entry with host bits":       {"ipAllowlist", []any{"203.0.113.1/24"}},
		"an entry with a zone":          {"ipAllowlist", []any{"fe80::1%eth0"}},
		"a block with a zone":           {"ipAllowlist", []any{"fe80::%eth0/64"}},
		"IPv4 in IPv6":                  {"ipAllowlist", []any{"::ffff:198.51.100.7"}},
		"a block of IPv4 in IPv6":       {"ipAllowlist", []any{"::ffff:203.0.113.0/120"}},
		"an entry with a leading zero":  {"ipAllowlist", []any{"203.0.113.007"}},
		"a prefix beyond the address":   {"ipAllowlist", []any{"203.0.113.0/33"}},
		"an entry with spaces around":   {"ipAllowlist", []any{" 203.0.113.7 "}},
		"an address without last octet": {"ipAllowlist", []any{"203.0.113"}},
	} {
		t.Run(desc, func(t *testing.T) {
			configMap, err := published.EncodeMerchant(credentials, merchantRecord())
			if err != nil {
				t.Fatal(err)
			}
			configMap.Data["merchant.json"] = string(changed(t, []byte(configMap.Data["merchant.json"]), change))
			_, err = published.DecodeMerchant(configMap)
			assertRefused(t, err)
		})
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for field, value := range map[string]any{
		"source.name":       7,
		"current.prefix":    []any{},
		"current.createdAt": nil,
		"generation":        secretWord,
		"state":             secretWord,
		"previous[0]":       []any{nil},
		"lastRotation":      map[string]any{},
	} {
		secret, err := published.EncodeKey(credentials, keyRecord())
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(field, "[")
		secret.Data["record.json"] = changed(t, secret.Data["record.json"], set{path, value})
		if _, err := published.DecodeKey(secret); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error about %s does not name it: %v", field, err)
		}
	}
}

// changed returns the record with one field set or removed.
func changed(t *testing.T, record []byte, change set) []byte {
	t.Helper()
	root := map[string]any{}
	if err := json.Unmarshal(record, &root); err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(change.path, ".")
	last := steps[len(steps)-1]
	parent := root
	for _, step := range steps[:len(steps)-1] {
		parent = parent[step].(map[string]any)
	}
	if change.value == nil {
		delete(parent, last)
	} else {
		parent[last] = change.value
	}
	out, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tooManyPrevious() []any {
	var out []any
	for range published.MaxPrevious + 1 {
		out = append(out, map[string]any{"digest": strings.Repeat("a", 64), "validUntil": issued})
	}
	return out
}

func assertRefused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, published.ErrInvalid) {
		t.Fatalf("error %v, want one that wraps ErrInvalid", err)
	}
	if strings.Contains(err.Error(), secretWord) {
		t.Errorf("the error quotes the record: %v", err)
	}
}

func TestReadableGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want int64
	}{
		"a record whose rest is broken":   {`{"version":1,"keyID":"?","generation":7}`, 7},
		"a record of a newer version":     {`{"version":99,"generation":7,"current":"new shape"}`, 7},
		"no record":                       {``, 0},
		"no JSON":                         {`generation: 7`, 0},
		"no generation":                   {`{}`, 0},
		"a generation that is no number":  {`{"generation":"7"}`, 0},
		"a negative generation":           {`{"generation":-7}`, 0},
		"a generation none can count on":  {`{"generation":9223372036854775807}`, 0},
		"a generation beyond any integer": {`{"generation":1e30}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"record.json": []byte(c.data)}}
			if got := published.ReadableGeneration(secret); got != c.want {
				t.Errorf("ReadableGeneration(%s) = %d, want %d", c.data, got, c.want)
			}
		})
	}
}
