package delivery_test

import (
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
)

// never is a timeout for tests in which something else must end the attempt.
const never = time.Hour

// loopback is what a platform's operator may open, and the tests' receivers need.
var loopback = egress.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// delivered is what a receiver was sent.
type delivered struct {
	proto, method, uri, host string
	header                   http.Header
	body                     []byte
}

// receiver is an endpoint that keeps what it is sent.
type receiver struct {
	*httptest.Server
	dials, open atomic.Int32 // connections: all, and those that are open

	mu  sync.Mutex
	got []delivered
}

func (r *receiver) all() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// receive starts an endpoint over TLS, which offers HTTP/2, that answers with the handler.
func receive(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := unstarted(answer)
	r.EnableHTTP2 = true
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // without failed handshakes, which the tests are about
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// receivePlain is receive over plain HTTP.
func receivePlain(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := unstarted(answer)
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func unstarted(answer http.HandlerFunc) *receiver {
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.got = append(r.got, delivered{
			request.Proto, request.Method, request.RequestURI, request.Host, request.Header, body,
		})
		r.mu.Unlock()
		answer(w, request)
	}))
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state { //nolint:exhaustive // the others change neither
		case http.StateNew:
			r.dials.Add(1)
			r.open.Add(1)
		case http.StateClosed:
			r.open.Add(-1)
		}
	}
	return r
}

// trusting returns options that open loopback and trust the receiver.
func (r *receiver) trusting() delivery.Options {
	options := delivery.Options{Rules: loopback, AllowHTTP: true, Timeout: never}
	if certificate := r.Certificate(); certificate != nil {
		options.RootCAs = x509.NewCertPool()
		options.RootCAs.AddCert(certificate)
	}
	return options
}

// speak starts a server that is no HTTP server: it reads something, sends the text, and hangs
// up or stays silent until the test ends.
func speak(t testing.TB, text string, hangUp bool) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ended := make(chan struct{})
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = connection.Close() }()
				_, _ = connection.Read(make([]byte, 4096))
				_, _ = io.WriteString(connection, text)
				if !hangUp {
					<-ended
				}
			})
		}
	})
	t.Cleanup(func() {
		close(ended)
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

func client(t testing.TB, options delivery.Options) *delivery.Client {
	t.Helper()
	c, err := delivery.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// send makes one attempt with a fresh client, and holds that its reason is one that may label a metric.
func send(t testing.TB, options delivery.Options, request delivery.Request) delivery.Result {
	t.Helper()
	result := client(t, options).Send(t.Context(), request)
	if !slices.Contains(delivery.Reasons(), result.Reason) {
		t.Errorf("reason %q is not in the list", result.Reason)
	}
	return result
}

// attempt is a request like the dispatcher's.
func attempt(url string) delivery.Request {
	return delivery.Request{
		URL:     url,
		ID:      "evt_qrstuvwxyz23X7pL1vB8nR3tY6wZaa_ended",
		Body:    []byte(`{"type":"session.completed"}`),
		Secrets: []published.SigningSecret{published.NewSigningSecret()},
		Now:     time.Now(),
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// cleartext is the URL of a server, spoken to without TLS.
func cleartext(address string) string { return "http://" + address + "/hooks" }

// overTLS is the URL of a server, spoken to with TLS.
func overTLS(address string) string {
	return "https://" + strings.TrimPrefix(address, "http://") + "/hooks"
}
