package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `# About the file.

# @schema minimum: 1
# -- How many.
replicas: 2
redis:
  # @schema enum: ["A|a", B]
  # -- Which type,
  # in words.
  type: B
  # @schema items: {type: string, pattern: ':[0-9]+$'}
  # -- Where.
  # @default -- elsewhere
  addresses: []
global:
  # -- Registry.
  registry: ""
# @schema type: [integer, string]
# -- A number or a share.
share: 1
# @schema additionalProperties: true
# -- Anything.
resources:
  limits: {memory: 1Gi}
`

func TestGenerate(t *testing.T) {
	got, err := generate([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"properties": {
			"global": {"type": "object", "additionalProperties": true, "properties": {
				"registry": {"type": "string", "description": "Registry."}}},
			"replicas": {"type": "integer", "minimum": 1, "description": "How many."},
			"redis": {"type": "object", "additionalProperties": false, "properties": {
				"type": {"type": "string", "enum": ["A|a", "B"], "description": "Which type, in words."},
				"addresses": {"type": "array", "items": {"type": "string", "pattern": ":[0-9]+$"}, "description": "Where."}}},
			"share": {"type": ["integer", "string"], "description": "A number or a share."},
			"resources": {"type": "object", "additionalProperties": true, "description": "Anything."}}}`
	if diff := cmp.Diff(decode(t, want), decode(t, string(got))); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestGenerate_IncompleteValues(t *testing.T) {
	for values, want := range map[string]string{
		"a: 1":                            "a: add a comment with a description",
		"# Not a description.\na: 1":      "a: add a comment with a description",
		"a:\n  b: 1":                      "a.b: add a comment with a description",
		"# -- A.\na: []":                  "a: add a comment with `# @schema items",
		"# -- A.\na: {}":                  "a: add a comment with `# @schema additionalProperties",
		"# -- A.\na: null":                "a: add a comment with `# @schema type",
		"# @schema max: 1\n# -- A.\na: 1": "a: @schema max: unknown keyword",
		"- a":                             "is not a map",
	} {
		if _, err := generate([]byte(values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error about %q", values, err, want)
		}
	}
}

func decode(t *testing.T, text string) (out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
