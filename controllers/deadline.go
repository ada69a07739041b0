package controllers

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// tenantWriteTimeout is how long a write into a tenant's namespace may take: the default timeout of an admission webhook, which the tenant may
// run. After it the write counts as failed; it may have happened.
const tenantWriteTimeout = 10 * time.Second

// limitTenantWrites gives every write into another namespace than the operator's own a deadline.
func limitTenantWrites(config *rest.Config, own string) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return tenantWrites{next, own, tenantWriteTimeout} })
}

// tenantWrites is the transport with that deadline.
type tenantWrites struct {
	http.RoundTripper

	own     string // the credentials namespace
	timeout time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t tenantWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	_, after, namespaced := strings.Cut(request.URL.Path, "/namespaces/")
	if namespace, _, _ := strings.Cut(after, "/"); !namespaced || namespace == t.own || request.Method == http.MethodGet {
		return t.RoundTripper.RoundTrip(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), t.timeout)
	response, err := t.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = cancelledBody{response.Body, cancel}
	return response, nil
}

// cancelledBody ends the context of its request when it is closed.
type cancelledBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b cancelledBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
