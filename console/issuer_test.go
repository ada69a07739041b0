package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// answering is an issuer whose API knows the key from the given request on, and how often it was asked.
func answering(t *testing.T, from int64) (*issuer, *atomic.Int64) {
	t.Helper()
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < from {
			w.Header().Set("Error-Code", "key_not_found")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"keyID":"abcdefghijkl","generation":2,"fullKey":"mk_live_x"}`)
	}))
	t.Cleanup(server.Close)
	return &issuer{server.Client(), server.URL}, asked
}

// A balancer in front of the internal port forgets the console's connection. One request fails, and the next one has a connection of its own.
func TestIssuer_ConnectionForgotten(t *testing.T) {
	proxytest.CheckForgotten(t, func(url, authority string) *http.Client {
		api, err := newIssuer(&rest.Config{}, Options{InternalURL: url, InternalCAFile: authority})
		if err != nil {
			t.Fatal(err)
		}
		return api.http
	})
}

// A rotation whose answer could no longer be shown is not started: nobody would have its key.
func TestIssuer_NoTimeLeft(t *testing.T) {
	api, asked := answering(t, 1)
	key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: "u"}}
	ctx, cancel := context.WithTimeout(t.Context(), issuerTimeout)
	defer cancel()
	if _, err := api.rotate(ctx, key, 1, 0, "ann"); !errors.Is(err, errNoTime) || asked.Load() != 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
	ctx, cancel = context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	if issued, err := api.rotate(ctx, key, 1, 0, "ann"); err != nil || issued.FullKey == "" {
		t.Errorf("%+v, %v", issued, err)
	}
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
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
			defer cancel()
			_, err := (&console{issuer: &issuer{server.Client(), server.URL}}).firstKey(ctx, key, login.Person{})
			if !errors.Is(err, errRefused) || asked.Load() != 1 {
				t.Errorf("%v, after %d requests", err, asked.Load())
			}
		})
	}
}

// A new ApiKey is published a moment after it was created.
func TestFirstKey_WaitsUntilPublished(t *testing.T) {
	api, asked := answering(t, 4)
	key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: "u"}}
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	issued, err := (&console{issuer: api}).firstKey(ctx, key, login.Person{})
	if err != nil || issued.FullKey == "" || asked.Load() != 4 {
		t.Errorf("%+v, %v, after %d requests", issued, err, asked.Load())
	}
}
