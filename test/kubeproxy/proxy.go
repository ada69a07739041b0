// Package kubeproxy stands between one client and a kube-apiserver, so that a test can freeze the
// client's watches, as a partition or a stuck relist does, while its other calls go through; or cut
// it off altogether.
package kubeproxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy forwards to a kube-apiserver with the credentials of one account.
type Proxy struct {
	server  *httptest.Server
	watches *gate // open: the events of watches pass
	updates *gate // open: the answers to updates pass
	all     *gate // open: the kube-apiserver can be reached
}

// Start starts a proxy on a loopback port that speaks to the kube-apiserver as config does. The
// caller closes it.
func Start(config *rest.Config) (*Proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a transport to the kube-apiserver: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("read the kube-apiserver's address: %w", err)
	}
	p := &Proxy{watches: newGate(), updates: newGate(), all: newGate()}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // events at once
		ModifyResponse: func(response *http.Response) error {
			switch {
			case response.Request.URL.Query().Get("watch") == "true":
				response.Body = &gatedBody{response.Body, p.watches, response.Request.Context()}
			case response.Request.Method == http.MethodPut:
				response.Body = &gatedBody{response.Body, p.updates, response.Request.Context()}
			}
			return nil
		},
	}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.all.isOpen() {
			panic(http.ErrAbortHandler) // the connection breaks without an answer
		}
		forward.ServeHTTP(w, r)
	}))
	return p, nil
}

// Kubeconfig writes a kubeconfig that leads through the proxy into dir and returns its path.
func (p *Proxy) Kubeconfig(dir, name string) (string, error) {
	path := filepath.Join(dir, name+".kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, path)
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return path, os.Chmod(path, 0o600)
}

// URL is where clients find it.
func (p *Proxy) URL() string { return p.server.URL }

// FreezeWatches holds back every event of open and new watches until ThawWatches. Nothing is lost:
// the events arrive late.
func (p *Proxy) FreezeWatches() { p.watches.shut() }

// ThawWatches lets the events pass that were held back.
func (p *Proxy) ThawWatches() { p.watches.open() }

// HoldUpdates lets updates happen, and holds back what the client gets to know of them until ReleaseUpdates.
func (p *Proxy) HoldUpdates() { p.updates.shut() }

// ReleaseUpdates lets the answers pass that were held back.
func (p *Proxy) ReleaseUpdates() { p.updates.open() }

// Cut breaks every connection and refuses new ones until Mend.
func (p *Proxy) Cut() {
	p.all.shut()
	p.server.CloseClientConnections()
}

// Restore ends Cut.
func (p *Proxy) Restore() { p.all.open() }

// Close stops the proxy, frozen or not.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.ThawWatches()
	p.ReleaseUpdates()
	p.server.Close()
}
