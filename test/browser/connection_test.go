package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// openPage opens the page of a new session at base and waits for its stream.
func openPage(t *testing.T, base string, settings browsertest.Settings) (page *browsertest.Page, id string) {
	t.Helper()
	id = newShop(t).charge(t)
	page = sharedBrowser.NewPage(t, settings)
	page.Open(base + "/pay/" + id)
	awaitStream(t, page, statusURL(base, id))
	return page, id
}

// Timers do not fire on these pages: what is shown comes with the return.
func TestAPhoneThatReturnsShowsTheEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	base := shared.replicas[0].Public
	for name, away := range map[string]struct{ leave, comeBack func(*browsertest.Page) }{
		"frozen":  {(*browsertest.Page).Freeze, (*browsertest.Page).Resume},
		"offline": {func(p *browsertest.Page) { p.SetOffline(true) }, func(p *browsertest.Page) { p.SetOffline(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, id := openPage(t, base, browsertest.Settings{Script: slow})
			page.AllowErrors("net::ERR_INTERNET_DISCONNECTED")
			away.leave(page)
			awaitRequests(t, page, statusURL(base, id), "over", func(_, inFlight int) bool { return inFlight == 0 })
			if name == "offline" {
				page.Until("it says so", "document.getElementById('offline').checkVisibility() && document.getElementById('check').checkVisibility()")
			}
			s.end(t, id, "COMPLETED")
			away.comeBack(page)
			awaitShown(page, "COMPLETED")
			if _, _, most := page.Requests(statusURL(base, id)); most != 1 {
				t.Errorf("%d requests at once", most)
			}
		})
	}
}

const countEvents = `globalThis.events = 0;
	const read = ReadableStreamDefaultReader.prototype.read;
	ReadableStreamDefaultReader.prototype.read = async function () {
		const result = await read.call(this);
		events++;
		return result;
	}`

// A change of which no message comes is shown when the replica reads the session again: at the latest after its interval.
func TestALostMessageOnlyDelays(t *testing.T) { //nolint:tparallel // one loss after the other: a new subscription reads both sessions
	t.Parallel()
	for _, lost := range []string{"message", "subscription"} {
		t.Run(lost, func(t *testing.T) {
			page, id := openPage(t, shared.replicas[0].Public, browsertest.Settings{Script: countEvents})
			page.Until("the replica has read the session", "globalThis.events > 0")
			if lost == "subscription" {
				client := redis.NewClient(&redis.Options{Addr: shared.Redis.Addr()})
				defer func() { _ = client.Close() }()
				if err := client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
					t.Fatal(err)
				}
			}
			expire(t, id) // which says nothing to anybody
			awaitShown(page, "EXPIRED")
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRollingRestartIsNotSeen(t *testing.T) {
	t.Parallel()
	var serving atomic.Value // the address of the replica that the proxy asks
	use := func(replica string) { serving.Store(strings.TrimPrefix(replica, "http://")) }
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" },
		FlushInterval: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			ask := func() (*http.Response, error) {
				r.URL.Host = serving.Load().(string)
				return http.DefaultTransport.RoundTrip(r)
			}
			response, err := ask()
			if err != nil { // the old replica went before it took the request: like other proxies, ask another one
				response, err = ask()
			}
			return response, err
		}),
	})
	t.Cleanup(proxy.Close)
	first, stopFirst := shared.APIServer(t, "old", patient)
	use(first.Public)
	page, id := openPage(t, proxy.URL, browsertest.Settings{Script: fast})
	second, _ := shared.APIServer(t, "new", patient)
	use(second.Public)
	stopFirst()
	awaitRequests(t, page, statusURL(proxy.URL, id), "sent to the new replica", func(total, inFlight int) bool { return total > 1 && inFlight == 1 })
	awaitShown(page, "PENDING")
	newShop(t).end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	if _, _, most := page.Requests(statusURL(proxy.URL, id)); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

// nginx starts a proxy with its defaults, which buffer answers, before the first replica. settings are of the server block.
func nginx(t *testing.T, settings string) (base string) {
	t.Helper()
	var address string
	if err := fixture.Choose(&address); err != nil {
		t.Fatal(err)
	}
	proxytest.Nginx(t, address, fmt.Sprintf("events {} http { %s server { listen %s; location / { proxy_pass %s; %s } } }",
		proxytest.NginxTemporary, address, shared.replicas[0].Public, settings))
	return "http://" + address
}

func TestStreamsPassABufferingProxy(t *testing.T) {
	t.Parallel()
	base := nginx(t, "")
	page, id := openPage(t, base, browsertest.Settings{Script: slow}) // so a stream that is stuck stays stuck
	first := browsertest.Eval[string](page, fmt.Sprintf(`fetch('/api/v1/public/sessions/%s?second', { headers: { Accept: 'text/event-stream' } })
		.then(async ({ body }) => {
			const reader = body.getReader(), { value } = await reader.read();
			reader.cancel();
			return new TextDecoder().decode(value);
		})`, id))
	if !strings.Contains(first, "event: status\n") {
		t.Errorf("while the stream is open, %q comes through", first)
	}
	newShop(t).end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
}

func TestLongPollsPassAProxyThatBuffersStreams(t *testing.T) {
	t.Parallel()
	base := nginx(t, "proxy_ignore_headers X-Accel-Buffering;")
	page, id := openPage(t, base, browsertest.Settings{Script: fast})
	awaitRequests(t, page, statusURL(base, id), "a stream and polls", func(total, inFlight int) bool { return total > 2 && inFlight == 1 })
	newShop(t).end(t, id, "CANCELLED")
	awaitShown(page, "CANCELLED")
	if _, _, most := page.Requests(statusURL(base, id)); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}
