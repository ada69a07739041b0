package issuer

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
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// answering is an issuer whose API knows the key from the given request on, and how often it was asked.
func answering(t *testing.T, from int64) (*Client, *atomic.Int64) {
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
	return &Client{server.Client(), server.URL}, asked
}

// A balancer in front of the internal port forgets the console's connection. One request fails, and the next one has a connection of its own.
func TestIssuer_ConnectionForgotten(t *testing.T) {
	proxytest.CheckForgotten(t, func(url, authority string) *http.Client {
		api, err := New(&rest.Config{}, Options{URL: url, CAFile: authority})
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
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	if _, err := api.Rotate(ctx, key, 1, 0, "ann"); !errors.Is(err, ErrNoTime) || asked.Load() != 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
	ctx, cancel = context.WithTimeout(t.Context(), web.RequestTimeout)
	defer cancel()
	if issued, err := api.Rotate(ctx, key, 1, 0, "ann"); err != nil || issued.FullKey == "" {
		t.Errorf("%+v, %v", issued, err)
	}
}
