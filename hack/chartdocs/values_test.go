package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `# The file's own words.

# How many.
# +minimum=1
replicas: 2
redis:
  # Which kind,
  # in words.
  # +enum=A|a,B
  type: B
  # Where.
  # +items=string
  # +itemPattern=:[0-9]+$
  addresses: []
# A number or a share.
# +type=integer,string
share: 1
# Labels.
# +values=string
labels: {}
# Anything.
# +open
resources:
  limits: {memory: 1Gi}
`

func TestTheSchemaOfValues(t *testing.T) {
	root, err := parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	text, err := encodeSchema(root)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"properties": {
			"global": {"type": "object", "description": "Values of a chart that this one is a part of; not used."},
			"replicas": {"type": "integer", "minimum": 1, "description": "How many."},
			"redis": {"type": "object", "additionalProperties": false, "properties": {
				"type": {"type": "string", "enum": ["A|a", "B"], "description": "Which kind, in words."},
				"addresses": {"type": "array", "items": {"type": "string", "pattern": ":[0-9]+$"}, "description": "Where."}}},
			"share": {"type": ["integer", "string"], "description": "A number or a share."},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Labels."},
			"resources": {"type": "object", "description": "Anything."}}}`
	if diff := cmp.Diff(decode(t, want), decode(t, string(text))); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestTheTablesOfValues(t *testing.T) {
	root, err := parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	page, err := withTables([]byte("before\n"+begin+"old\n"+end+"after\n"), root)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| value | default | what it is |\n|---|---|---|\n"
	want := "before\n" + begin + "\n### General\n\n" + head +
		"| `replicas` | `2` | How many. |\n" +
		"| `share` | `1` | A number or a share. |\n" +
		"| `labels` | `{}` | Labels. |\n" +
		"| `resources` | `{\"limits\":{\"memory\":\"1Gi\"}}` | Anything. |\n" +
		"\n### redis\n\n" + head +
		"| `redis.type` | `\"B\"` | Which kind, in words. One of `A\\|a`, `B`. |\n" +
		"| `redis.addresses` | `[]` | Where. |\n\n" + end + "after\n"
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if _, err := withTables([]byte("a page without the lines"), root); err == nil {
		t.Error("a page without a place for the tables is taken")
	}
}

func TestValuesThatSayTooLittleAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"a: 1":                              "a: has no comment",
		"a:\n  b: 1":                        "a.b: has no comment",
		"# A.\na: []":                       "a: is a list, and +items",
		"# A.\na: {}":                       "a: is an empty map",
		"# A.\na: null":                     "a: is null, and +type",
		"# A.\n# +items=texts\na: []":       `a: +items=texts: "texts" is none of the types`,
		"# A.\n# +minimum=few\na: 1":        "a: +minimum=few",
		"# A.\n# +pattern=(\na: x":          "a: +pattern=(",
		"# A.\n# +maximal=3\na: 1":          `no mark is called "maximal"`,
		"# A.\n# +type=integer,text\na: 1":  "is none of the types",
		"- a":                               "want one map",
		"# A.\na: 1\n# B.\n# +what\nb: 2\n": "b: +what",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", text, err, says)
		}
	}
	root, err := parse([]byte("# A.\na: 1.5"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encodeSchema(root); err == nil {
		t.Error("a default of no known type is taken")
	}
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
