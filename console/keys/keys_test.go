package keys

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// newIssuer returns a client of an internal port without a token.
func newIssuer(t *testing.T, url string) *issuer.Client {
	t.Helper()
	client, err := issuer.New(&rest.Config{}, issuer.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A 404 of a server that does not know the route, or of a proxy, does not say that the key will be published.
func TestFirstKey_NoSuchRoute(t *testing.T) {
	for name, code := range map[string]string{"no code": "", "another code": "path_not_found"} {
		t.Run(name, func(t *testing.T) {
			asked := new(atomic.Int64)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.Header().Set("Error-Code", code)
				w.WriteHeader(http.StatusNotFound)
			}))
			t.Cleanup(server.Close)
			key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: "u"}}
			ctx, cancel := context.WithTimeout(t.Context(), web.RequestTimeout)
			defer cancel()
			_, err := New(Options{Issuer: newIssuer(t, server.URL)}).firstKey(ctx, key, login.Person{})
			if !errors.Is(err, issuer.ErrRefused) || asked.Load() != 1 {
				t.Errorf("%v, after %d requests", err, asked.Load())
			}
		})
	}
}

// A new ApiKey is published a moment after it was created.
func TestFirstKey_WaitsUntilPublished(t *testing.T) {
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 4 {
			w.Header().Set("Error-Code", "key_not_found")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"keyID":"abcdefghijkl","generation":2,"fullKey":"mk_live_x"}`)
	}))
	t.Cleanup(server.Close)
	key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: "u"}}
	ctx, cancel := context.WithTimeout(t.Context(), web.RequestTimeout)
	defer cancel()
	issued, err := New(Options{Issuer: newIssuer(t, server.URL)}).firstKey(ctx, key, login.Person{})
	if err != nil || issued.FullKey == "" || asked.Load() != 4 {
		t.Errorf("%+v, %v, after %d requests", issued, err, asked.Load())
	}
}

// What people call a till leads to a name that a key may have.
func TestKeyName(t *testing.T) {
	for text, want := range map[string]string{
		"Till 2 (bar)": "till-2-bar", "Kasse außen": "kasse-aussen", " Théâtre_1 ": "theatre-1", "Küche\u0308": "kueche", "--A--": "a", "収銀機": "", "": "",
		strings.Repeat("ab ", 40): strings.Repeat("ab-", 21)[:62],
	} {
		if got := keyName(text); got != want || got != "" && len(validation.IsDNS1123Label(got)) > 0 {
			t.Errorf("%q leads to %q, want %q", text, got, want)
		}
	}
}
