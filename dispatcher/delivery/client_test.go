package delivery_test

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// Every test runs where the environment names a proxy, which net/http reads only once. There is none
// at that address.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	leaks.Run(m, func() error { return nil })
}

// A proxy would resolve and connect where the guard cannot see. (One is never used for loopback
// addresses, hence the name.)
func TestSend_IgnoresTheEnvironmentsProxy(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("example.com", "127.0.0.1")
	r := receive(t, status(http.StatusOK))
	options := r.trusting()
	options.Resolver = names.Resolver()
	got := send(t, options, attempt("https://example.com"+r.URL[strings.LastIndexByte(r.URL, ':'):]))
	if got.Outcome != delivery.Delivered {
		t.Errorf("%+v", got)
	}
}

// hangUp ends the connection of a request without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// inTurn gives the answers in order, and then repeats the last one.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var before atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(before.Add(1)), len(answers))-1](w, r)
	}
}

// A receiver may close a kept connection at the instant the next event arrives on it, which says nothing of the endpoint.
func TestSend_KeptConnectionEnds(t *testing.T) {
	r := receivePlain(t, inTurn(status(http.StatusOK), hangUp, status(http.StatusOK)))
	c := client(t, r.trusting())
	for i, want := range []int{1, 3, 4} {
		if result := c.Send(t.Context(), attempt(r.URL)); result.Outcome != delivery.Delivered {
			t.Errorf("event %d: %+v", i, result)
		}
		if got := len(r.all()); got != want {
			t.Errorf("%d requests until event %d, want %d", got, i, want)
		}
	}
}

// The request is repeated on another connection once, and not at all when it was on a new one.
func TestSend_NewConnectionEnds(t *testing.T) {
	r := receivePlain(t, inTurn(status(http.StatusOK), hangUp))
	c := client(t, r.trusting())
	c.Send(t.Context(), attempt(r.URL))
	for i, want := range []int{3, 4} {
		if result := c.Send(t.Context(), attempt(r.URL)); result != (delivery.Result{Reason: "no_answer"}) {
			t.Errorf("event %d: %+v", i, result)
		}
		if got := len(r.all()); got != want {
			t.Errorf("%d requests until event %d, want %d", got, i, want)
		}
	}
}

// A name may move while its old host still answers, so no connection takes attempts for ever. The old ones are closed.
func TestSend_NewConnectionInTime(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{"HTTP": receivePlain, "HTTPS": receive} {
		t.Run(name, func(t *testing.T) {
			r := start(t, status(http.StatusNoContent))
			options, now := r.trusting(), time.Now()
			options.Now, options.Timeout = func() time.Time { return now }, 5*time.Second
			c := client(t, options)
			for range 4 {
				if got := c.Send(t.Context(), attempt(r.URL)); got.Outcome != delivery.Delivered {
					t.Fatalf("%+v", got)
				}
				now = now.Add(2 * time.Minute)
			}
			if dials := r.dials.Load(); dials != 2 {
				t.Errorf("%d connections in 6 minutes, want 2", dials)
			}
			await.Until(t, time.Minute, "the first connection is closed", func() bool { return r.open.Load() == 1 })
		})
	}
}

func TestSend_ReusesConnections(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{"HTTP": receivePlain, "HTTPS": receive} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thank you") })
			c := client(t, r.trusting())
			for range 5 {
				if got := c.Send(t.Context(), attempt(r.URL)); got.Outcome != delivery.Delivered {
					t.Fatalf("%+v", got)
				}
			}
			if dials := r.dials.Load(); dials != 1 {
				t.Errorf("%d connections for 5 attempts, want 1", dials)
			}
		})
	}
}

func TestSend_FailureReason(t *testing.T) {
	free, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	nobody := net.JoinHostPort("127.0.0.1", strconv.Itoa(free))
	names := dnstest.Start(t)
	names.Set("other.example", "127.0.0.1")
	secure := receive(t, status(http.StatusOK))
	plain := receivePlain(t, status(http.StatusOK))
	opened := secure.trusting()
	opened.Resolver = names.Resolver()
	suspicious := opened
	suspicious.RootCAs = nil
	tests := map[string]struct {
		url     string
		options delivery.Options
		want    string
	}{
		"no such name":                {"https://shop.example/hooks", opened, "dns"},
		"nobody listens":              {overTLS(nobody), opened, "connect"},
		"a port that is none":         {"https://127.0.0.1:0/", opened, "connect"},
		"a certificate of nobody":     {secure.URL, suspicious, "tls"},
		"a certificate of another":    {strings.Replace(secure.URL, "127.0.0.1", "other.example", 1), opened, "tls"},
		"HTTP where HTTPS should be":  {overTLS(plain.URL), opened, "tls"},
		"a handshake that breaks off": {overTLS(speak(t, "", true)), opened, "no_answer"},
		"an answer that breaks off":   {cleartext(speak(t, "HTTP/1.1 200", true)), opened, "no_answer"},
		"no word at all":              {cleartext(speak(t, "", true)), opened, "no_answer"},
		"something that is not HTTP":  {cleartext(speak(t, "SSH-2.0-OpenSSH_9.2\r\n", true)), opened, "no_answer"},
		"headers too large": {
			cleartext(speak(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n", true)), opened, "no_answer",
		},
		"answers without end": {
			cleartext(speak(t, strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 10_000), true)), opened, "no_answer",
		},
		"a URL that is none":    {"https://shop.example:port/", opened, "bad_url"},
		"an empty URL":          {"", opened, "bad_url"},
		"no host":               {"https:///hooks", opened, "bad_url"},
		"a port without a host": {"https://:443/hooks", opened, "bad_url"},
		"a path":                {"/hooks", opened, "bad_url"},
		"opaque":                {"https:shop.example", opened, "bad_url"},
		"user info":             {"https://user:pass@shop.example/", opened, "bad_url"},
		"another scheme":        {"ftp://shop.example/", opened, "bad_url"},
		"a file":                {"file:///etc/passwd", opened, "bad_url"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := send(t, test.options, attempt(test.url)); got != (delivery.Result{Reason: test.want}) {
				t.Errorf("got %+v, want %s", got, test.want)
			}
		})
	}
	if hits := len(secure.all()) + len(plain.all()); hits != 0 {
		t.Errorf("%d requests were made", hits)
	}
}

func TestSend_InternalAddresses(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("shop.example", "127.0.0.1")
	names.Set("cluster.example", "10.96.0.1")
	inside := receive(t, status(http.StatusOK))
	port := inside.URL[strings.LastIndexByte(inside.URL, ':'):]
	closed := inside.trusting()
	closed.Allow, closed.AllowHTTP, closed.Resolver = nil, false, names.Resolver()
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "0.0.0.0", "[::]",
		"169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "100.64.0.1", "[fe80::1%25lo]", "localhost", "shop.example", "cluster.example",
	} {
		if got := send(t, closed, attempt("https://"+host+port)); got != (delivery.Result{Reason: "refused_address"}) {
			t.Errorf("%s: %+v, want refused_address", host, got)
		}
	}
	if hits := inside.dials.Load(); hits != 0 {
		t.Errorf("%d connections were made", hits)
	}
}

// A layer-4 balancer that forgets a kept connection fails one attempt. The next attempt gets a connection of its own.
func TestSend_ConnectionForgotten(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{"HTTP": receivePlain, "HTTPS": receive} {
		t.Run(name, func(t *testing.T) {
			r := start(t, status(http.StatusOK))
			scheme, host, _ := strings.Cut(r.URL, "://")
			balancer := proxytest.NewBalancer(t, host)
			options := r.trusting()
			options.Timeout = 500 * time.Millisecond
			c := client(t, options)
			request := attempt(scheme + "://" + balancer.Address + "/hooks")
			if got := c.Send(t.Context(), request); got.Outcome != delivery.Delivered {
				t.Fatalf("before: %+v", got)
			}
			balancer.Forget()
			first := c.Send(t.Context(), request)
			if first.Reason != delivery.ReasonTimeout {
				t.Errorf("the attempt on the forgotten connection: %+v", first)
			}
			if second := c.Send(t.Context(), request); second.Outcome != delivery.Delivered {
				t.Errorf("the next attempt: %+v, on %d connections", second, balancer.Accepted())
			}
		})
	}
}

func TestSend_PlainHTTP(t *testing.T) {
	r := receivePlain(t, status(http.StatusOK))
	options := r.trusting()
	options.AllowHTTP = false
	if got := send(t, options, attempt(r.URL)); got != (delivery.Result{Reason: "refused_scheme"}) {
		t.Errorf("got %+v, want refused_scheme", got)
	}
	if dials := r.dials.Load(); dials != 0 {
		t.Errorf("%d connections were made", dials)
	}
}

// What is public may point inside in three ways: by its answer, by its name, and by a name that was good.
func TestSend_PublicEndpointPointsInside(t *testing.T) {
	names := dnstest.Start(t)
	inside := receive(t, status(http.StatusOK))
	port := inside.URL[strings.LastIndexByte(inside.URL, ':'):]
	for _, code := range []int{301, 302, 303, 307, 308} {
		outside := receive(t, func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, inside.URL, code)
		})
		options := outside.trusting()
		if got := send(t, options, attempt(outside.URL)); got != (delivery.Result{Status: code, Reason: "redirect"}) {
			t.Errorf("%d gives %+v", code, got)
		}
	}
	options := inside.trusting()
	options.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	options.Resolver = names.Resolver()
	names.Set("example.com", "127.0.0.1") // for which the receiver has a certificate
	if got := send(t, options, attempt("https://example.com"+port)); got.Outcome != delivery.Delivered {
		t.Fatalf("while the name is good: %+v", got)
	}
	names.Set("example.com", "127.0.0.2")
	if got := send(t, options, attempt("https://example.com"+port)); got.Reason != "refused_address" {
		t.Errorf("after it has turned inwards: %+v", got)
	}
	if hits := len(inside.all()); hits != 1 {
		t.Errorf("%d requests came in, want the 1 of the good name", hits)
	}
}

func TestNew_InvalidBlock(t *testing.T) {
	if _, err := delivery.New(delivery.Options{Rules: egress.Rules{Allow: []netip.Prefix{{}}}}); err == nil {
		t.Error("accepted")
	}
}
