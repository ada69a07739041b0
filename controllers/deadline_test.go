package controllers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Only a write into a tenant's namespace has the deadline: a restriction, and a watch, may take longer.
func TestTenantWrites(t *testing.T) {
	const held = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(held):
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: tenantWrites{http.DefaultTransport, "credentials", time.Nanosecond}}
	for name, tc := range map[string]struct {
		method, path string
		ends         bool
	}{
		"a Secret of a tenant":   {http.MethodPost, "/api/v1/namespaces/shops/secrets", true},
		"a status":               {http.MethodPatch, "/apis/merchant-operator.io/v1alpha1/namespaces/shops/apikeys/till/status", true},
		"a published Secret":     {http.MethodPut, "/api/v1/namespaces/credentials/secrets/key-a", false},
		"a read":                 {http.MethodGet, "/api/v1/namespaces/shops/secrets/till-key", false},
		"a watch of the cluster": {http.MethodGet, "/api/v1/secrets", false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if ended := errors.Is(err, context.DeadlineExceeded); ended != tc.ends {
				t.Errorf("ended: %t (%v)", ended, err)
			}
		})
	}
}
