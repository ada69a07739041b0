// Package ingress tries the API behind real proxies, with the settings of docs/ingress.md.
package ingress

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// installation has two replicas of the API. They trust the address from which proxies connect, and no other.
var (
	installation *fixture.Installation
	replicas     []fixture.Replica
)

const proxyAddress = "127.0.0.1"

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	var err error
	if installation, err = fixture.Install(); err == nil {
		err = start()
	}
	if err != nil {
		log.Fatal(errors.Join(err, installation.Close()))
	}
	code := m.Run()
	if err := installation.Close(); err != nil {
		log.Fatal(err)
	}
	os.Exit(code) //nolint:forbidigo // it is main here
}

func start() error {
	if _, err := installation.StartOperator("operator", func(o *controllers.Options) { o.LeaderElect = false }); err != nil {
		return err
	}
	for _, name := range []string{"apiserver-1", "apiserver-2"} {
		replica, err := installation.StartAPIServer(name, behindProxy)
		if err != nil {
			return err
		}
		replicas = append(replicas, replica)
	}
	return nil
}

func behindProxy(o *apiserver.Options) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(proxyAddress + "/32")}
	o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 10_000}
	o.Streams.MaxPerAddress, o.Streams.Drain = o.Streams.Max, time.Second
}

// proxy is a running proxy.
type proxy struct {
	// IPv4 and IPv6 are addresses at which it listens.
	IPv4, IPv6 string
}

// proxies start each of them with the settings of the page, in front of a Service. nginx ends a stream without a line for the time.
var proxies = map[string]func(t *testing.T, service string, readTimeout time.Duration) proxy{"nginx": nginx, "Caddy": caddy}

// settings are a code block of docs/ingress.md, for the Service.
func settings(t *testing.T, language, service string) string {
	t.Helper()
	_, block, found := strings.Cut(repository.Read(t, "docs", "ingress.md"), "```"+language+"\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatalf("docs/ingress.md has no settings of %s", language)
	}
	return replace(t, block, `merchant-operator-apiserver\S+:8080`, service)
}

// replace replaces the one match, because a page that has changed must not be tried half.
func replace(t *testing.T, text, pattern, by string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	if found := expression.FindAllString(text, -1); len(found) != 1 {
		t.Fatalf("docs/ingress.md has %d matches of %s", len(found), pattern)
	}
	return expression.ReplaceAllLiteralString(text, by)
}

func listenOn(t *testing.T) (p proxy) {
	t.Helper()
	if err := fixture.Choose(&p.IPv4); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.IPv4)
	p.IPv6 = net.JoinHostPort("::1", port)
	return p
}

func nginx(t *testing.T, service string, readTimeout time.Duration) proxy {
	t.Helper()
	p := listenOn(t)
	text := settings(t, "nginx", service)
	text = replace(t, text, `(?s)listen .*?tls\.key;\n`, fmt.Sprintf("listen %s; listen %s;\n", p.IPv4, p.IPv6))
	text = replace(t, text, `proxy_read_timeout 60s`, fmt.Sprintf("proxy_read_timeout %dms", readTimeout.Milliseconds()))
	text = replace(t, text, `http \{\n`, "http {\n"+proxytest.NginxTemporary)
	proxytest.Nginx(t, p.IPv4, text)
	return p
}

func caddy(t *testing.T, service string, _ time.Duration) proxy {
	t.Helper()
	p := listenOn(t)
	proxytest.Caddy(t, p.IPv4, replace(t, settings(t, "caddyfile", service), `pay\.example\.com`, "http://"+p.IPv4+", http://"+p.IPv6))
	return p
}

// startProxy starts a proxy in front of replicas.
func startProxy(t *testing.T, name string, replicas ...fixture.Replica) proxy {
	t.Helper()
	return proxies[name](t, newService(t, replicas...), time.Minute)
}

// client connects from an address of this machine.
func client(t *testing.T, from string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: fixture.Patience}
}

// shop is a merchant with a key that works everywhere.
func shop(t *testing.T, change ...func(*v1alpha1.Merchant)) (key string) {
	t.Helper()
	n := fixture.NewTenant(t, installation.Client)
	n.Merchant("acme", change...)
	_, key = n.ApiKey("till", "acme")
	return key
}

// charge creates a session at a replica, without a proxy.
func charge(t *testing.T, key string) (id string) {
	t.Helper()
	await(t, "a charge", func() bool {
		answer, err := fixture.Call(http.DefaultClient, replicas[0].Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":100}`)
		id = answer.Text("sessionId")
		return err == nil && answer.Status == http.StatusCreated
	})
	return id
}

// cancel ends a session.
func cancel(t *testing.T, key, id string) {
	t.Helper()
	answer, err := fixture.Call(http.DefaultClient, replicas[0].Public, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", key, "")
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("cancel: %d, %v", answer.Status, err)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	fixture.Tenant{T: t}.Eventually(what, holds)
}

// newService is what a Service is to a proxy: one address, whose new connections go to the replicas that are ready, one after the other.
func newService(t *testing.T, replicas ...fixture.Replica) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", proxyAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	var ready atomic.Pointer[[]fixture.Replica]
	ready.Store(&replicas)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				var now []fixture.Replica
				for _, replica := range replicas {
					if fixture.Ready(replica.Ops) {
						now = append(now, replica)
					}
				}
				ready.Store(&now)
			}
		}
	})
	tasks.Go(func() {
		for n := 0; ; n++ {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			to := *ready.Load()
			if len(to) == 0 {
				_ = accepted.Close()
				continue
			}
			go forward(accepted, strings.TrimPrefix(to[n%len(to)].Public, "http://"))
		}
	})
	t.Cleanup(func() {
		close(over)
		_ = listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

// forward copies both ways until one side ends, and then ends the other: with a reset if there was one.
func forward(client net.Conn, replica string) {
	server, err := net.Dial("tcp", replica)
	if err != nil {
		reset(client)
		return
	}
	var both sync.WaitGroup
	one := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			reset(to)
			return
		}
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
	both.Go(func() { one(server, client) })
	both.Go(func() { one(client, server) })
	both.Wait()
	_ = client.Close()
	_ = server.Close()
}

func reset(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
