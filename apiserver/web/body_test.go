package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// decoded takes an object apart as encoding/json does; ok is false where parseObject must refuse it.
func decoded(body []byte) (fields map[string]string, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return nil, false
	}
	fields = map[string]string{}
	for decoder.More() {
		token, err := decoder.Token()
		name, isText := token.(string)
		var value json.RawMessage
		if err != nil || !isText || decoder.Decode(&value) != nil {
			return nil, false
		}
		if _, twice := fields[name]; twice {
			return nil, false
		}
		fields[name] = string(value)
	}
	return fields, true
}

// many is an object of n fields.
func many(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"%d":%d`, i, i)
	}
	return "{" + strings.Join(names, ",") + "}"
}

// FuzzParseObject compares with encoding/json on everything that is valid JSON.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `[]`, `null`, `"a"`, `1`, `{"a":1}`, "{\t\"a\"\r\n: 1.5e3 ,\"b\" :-2}", `{"a":"}","b":"\\"","c":"\\\\"}`,
		`{"a":{"b":[1,{"c":"]"}]},"d":[]}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"":null,"x":true,"y":false}`, `{"a":[[[]]],"b":{}}`,
		`{"a":"\u00e9","é":1}`, `{"a,b":"c:d","{":"[","}":"]"}`,
		many(15), many(16), many(17), many(40), strings.Replace(many(40), `"39"`, `"0"`, 1), strings.Replace(many(17), `"3"`, `"16"`, 1),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Skip()
		}
		want, ok := decoded(body)
		taken, err := parseObject(string(body))
		if ok != (err == nil) {
			t.Fatalf("%q: %v, want it to be accepted: %v", body, err, ok)
		}
		if !ok {
			return
		}
		got := map[string]string{}
		for _, field := range taken.fields {
			if value, given := taken.value(field.name); !given || value != field.value {
				t.Errorf("%q: %q is %q, %v, want %q", body, field.name, value, given, field.value)
			}
			got[field.name] = field.value
		}
		if !cmp.Equal(want, got) || len(got) != len(taken.fields) {
			t.Errorf("%q (-want +got):\n%s", body, cmp.Diff(want, got))
		}
		for name, raw := range want {
			var text *string
			valid := json.Unmarshal([]byte(raw), &text) == nil && text != nil
			unquoted, err := unquoted(raw)
			if valid && (err != nil || unquoted != *text) {
				t.Errorf("%q: the text of %q is %q, %v, want %q", body, name, unquoted, err, *text)
			}
		}
	})
}
