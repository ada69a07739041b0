package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestReadQuery(t *testing.T) {
	const malformed = "the query is malformed: write each parameter as name=value, percent-encoded"
	for query, want := range map[string]string{
		"":              "",
		"a=1&b=%20":     "",
		"a":             "",
		"a=1&a=1":       "a must be given at most once",
		"A=1":           `unknown parameter "A"`,
		"c=1&c=1":       `unknown parameter "c"`,
		"=1":            `unknown parameter ""`,
		"x%0a%c3%a4=1":  `unknown parameter "x\n\u00e4"`,
		"a=%zz":         malformed,
		"a=1;b=1":       malformed,
		"%61=1&a=2&b=3": "a must be given at most once",
	} {
		values, err := ReadQuery(httptest.NewRequest(http.MethodGet, "/?"+query, http.NoBody), "a", "b")
		if got := errorText(err); got != want || (err == nil) != (values != nil) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
