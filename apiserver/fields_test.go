package apiserver

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// decoded takes an object apart as encoding/json does; ok is false where fieldsOf must refuse it.
func decoded(body []byte) (fields map[string]json.RawMessage, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return nil, false
	}
	fields = map[string]json.RawMessage{}
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
		fields[name] = value
	}
	return fields, true
}

// FuzzFieldsOf compares with encoding/json on everything that is valid JSON.
func FuzzFieldsOf(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `[]`, `null`, `"a"`, `1`, `{"a":1}`, "{\t\"a\"\r\n: 1.5e3 ,\"b\" :-2}", `{"a":"}","b":"\\"","c":"\\\\"}`,
		`{"a":{"b":[1,{"c":"]"}]},"d":[]}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"":null,"x":true,"y":false}`, `{"a":[[[]]],"b":{}}`,
		`{"a":"\u00e9","é":1}`, `{"a,b":"c:d","{":"[","}":"]"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Skip()
		}
		want, ok := decoded(body)
		got, err := fieldsOf(body)
		if ok != (err == nil) {
			t.Fatalf("%q: %v, want it to be accepted: %v", body, err, ok)
		}
		if ok && !cmp.Equal(want, got) {
			t.Errorf("%q (-want +got):\n%s", body, cmp.Diff(want, got))
		}
		for name, raw := range want {
			var text *string
			valid := json.Unmarshal(raw, &text) == nil && text != nil
			unquoted, err := unquoted(raw)
			if valid && (err != nil || unquoted != *text) {
				t.Errorf("%q: the text of %q is %q, %v, want %q", body, name, unquoted, err, *text)
			}
		}
	})
}
