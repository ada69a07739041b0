package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// A console that starts while the Kubernetes API is away waits for it, and then shows what is there.
func TestRun_KubernetesAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.grant(group("shop-staff"), []string{"get"})
	options := f.options
	options.DrainDelay = 0
	for _, address := range []*string{&options.Address, &options.Ops.Address} {
		port, err := freeport.Choose()
		if err != nil {
			t.Fatal(err)
		}
		*address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	options.ExternalURL = "http://" + options.Address
	var back atomic.Bool
	var refused atomic.Int64
	options.Kubeconfig = f.kubeconfig(func(w http.ResponseWriter) bool {
		if back.Load() {
			return true
		}
		refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()

	ready := func() bool {
		response, err := http.Get("http://" + options.Ops.Address + "/readyz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}
	await.Until(t, patience, "the console has asked several times", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the console ended without the Kubernetes API: %v", err)
		default:
		}
		const several = 10
		return refused.Load() >= several
	})
	if ready() {
		t.Error("the console is ready without the Kubernetes API")
	}
	back.Store(true)
	await.Until(t, patience, "the console is ready", ready)
	page := identities.SignIn(t, oidctest.NewBrowser(t), options.ExternalURL+"/?all=yes", alice)
	if page.Status != http.StatusOK || !strings.Contains(page.Text, "ACME") {
		t.Errorf("once the Kubernetes API is back: %d %s\n%s", page.Status, page.Text, &f.log)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// kubeconfig leads to the Kubernetes API with the rights of the console's account. Requests that pass does not let pass, it answers.
func (f *fixture) kubeconfig(pass func(http.ResponseWriter) bool) (path string) {
	f.t.Helper()
	account, err := cluster.Account("merchant-operator-console")
	if err != nil {
		f.t.Fatal(err)
	}
	transport, err := rest.TransportFor(account.Config())
	if err != nil {
		f.t.Fatal(err)
	}
	target := parse(f.t, account.Config().Host)
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass(w) {
			forward.ServeHTTP(w, r)
		}
	}))
	f.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	path = filepath.Join(f.t.TempDir(), "kubeconfig")
	const format = "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: '%s'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(path, fmt.Appendf(nil, format, server.URL), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}
