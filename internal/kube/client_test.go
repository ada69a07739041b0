package kube_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// A balancer that fails over keeps the connection of a watch open and passes nothing on. The watch ends long before the minute that
// client-go would wait, because a disabled key is to be refused within five seconds.
func TestLoad_ConnectionForgotten(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	balancer := proxytest.NewBalancer(t, server.Listener.Addr().String())
	config, err := kube.Load(kubeconfig(t, server, "https://"+balancer.Address), "test", kube.Keep{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	watch, err := client.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watch.Body.Close() })
	if watch.ProtoMajor != 2 {
		t.Fatalf("the watch has %s", watch.Proto)
	}
	balancer.Forget()
	ended := make(chan error, 1)
	go func() {
		_, err := watch.Body.Read(make([]byte, 1))
		ended <- err
	}()
	const most = 10 * time.Second // on a busy machine; three seconds on an idle one
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watch got something")
		}
	case <-time.After(most):
		t.Errorf("the watch has not ended after %s", most)
	}
}

// A connection to a machine that is gone is given up within seconds: the next attempt may find it back.
func TestLoad_PacketsLost(t *testing.T) {
	server := httptest.NewServer(nil)
	t.Cleanup(server.Close)
	balancer := proxytest.NewBalancer(t, server.Listener.Addr().String())
	balancer.Drop(t)
	config, err := kube.Load(kubeconfig(t, server, "http://"+balancer.Address), "test", kube.Keep{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const most = 10 * time.Second // on a busy machine; three seconds on an idle one, thirty with the default
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil || ctx.Err() != nil {
		t.Errorf("the request ended with %v; want it given up within %s", err, most)
	}
}

// What somebody has set for a slow way to the Kubernetes API stays.
func TestLoad_KeepsEnvironment(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "20")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "")
	server := httptest.NewServer(nil)
	t.Cleanup(server.Close)
	if _, err := kube.Load(kubeconfig(t, server, server.URL), "test", kube.Keep{}); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"); got != "20" {
		t.Errorf("HTTP2_READ_IDLE_TIMEOUT_SECONDS is %q", got)
	}
	if got := os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"); got != "2" {
		t.Errorf("HTTP2_PING_TIMEOUT_SECONDS is %q", got)
	}
}

// kubeconfig writes a file for a server at a URL.
func kubeconfig(t *testing.T, server *httptest.Server, url string) string {
	t.Helper()
	cluster := &api.Cluster{Server: url}
	if certificate := server.Certificate(); certificate != nil {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"test": cluster},
		Contexts:       map[string]*api.Context{"test": {Cluster: "test"}},
		CurrentContext: "test",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
