package ops_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/ops"
)

func TestCheckProfiles(t *testing.T) {
	for address, open := range map[string]bool{
		":9090": true, "0.0.0.0:9090": true, "[::]:9090": true, "10.0.0.7:9090": true, "ops.example:9090": true, "": true,
		"127.0.0.1.example:9090": true, "[::ffff:10.0.0.7]:9090": true,
		"127.0.0.1:9090": false, "127.1.2.3:9090": false, "[::1]:9090": false, "localhost:9090": false, "[::ffff:127.0.0.1]:0": false,
	} {
		if err := ops.CheckProfiles(false, address); errors.Is(err, ops.ErrOpenProfiles) != open {
			t.Errorf("without authorization at %q: %v, want refused: %v", address, err, open)
		}
		if err := ops.CheckProfiles(true, address); err != nil {
			t.Errorf("with authorization at %q: %v", address, err)
		}
	}
}

func TestProfiles(t *testing.T) {
	for path, want := range map[string]int{
		"":                  http.StatusOK,
		"heap?gc=1":         http.StatusOK,
		"goroutine?debug=2": http.StatusOK,
		"profile?seconds=1": http.StatusOK,
		"cmdline":           http.StatusNotFound, // it may hold a password
		"../../metrics":     http.StatusNotFound,
	} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		request.RequestURI = ops.ProfilesPath + path
		var err error
		if request.URL, err = request.URL.Parse(request.RequestURI); err != nil {
			t.Fatal(err)
		}
		ops.Profiles().ServeHTTP(answer, request)
		if answer.Code != want || (want == http.StatusOK && answer.Body.Len() == 0) {
			t.Errorf("%s: status %d with %d bytes, want %d", path, answer.Code, answer.Body.Len(), want)
		}
	}
}
