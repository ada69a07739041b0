package browser

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
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

// restartable is a replica that a test stops. It is not the tests' shared one.
func restartable(t *testing.T, name string) (base string, stop func()) {
	t.Helper()
	options := apiserver.DefaultOptions()
	options.RedisURL = shared.Redis.URL()
	options.DrainDelay = 0
	options.Log = slog.New(slog.NewJSONHandler(&shared.Logs, nil)).With("role", name)
	patient(&options)
	var err error
	if options.Kubeconfig, err = shared.Kubeconfig(fixture.APIServerAccount); err != nil {
		t.Fatal(err)
	}
	if err := fixture.Choose(&options.PublicAddress, &options.InternalAddress, &options.Ops.Address); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- apiserver.Run(ctx, options) }()
	stop = func() {
		cancel()
		if err, running := <-ended; running && err != nil {
			t.Error(err)
		}
		ended <- nil // stop may be called again
	}
	t.Cleanup(stop)
	await.Until(t, fixture.Patience, name+" is ready", func() bool {
		return fixture.Ready("http://"+options.Ops.Address) || fixture.Ready("https://"+options.Ops.Address)
	})
	return "http://" + options.PublicAddress, stop
}

func TestRollingRestartIsNotSeen(t *testing.T) {
	t.Parallel()
	var backend atomic.Pointer[url.URL]
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(backend.Load()) },
		FlushInterval: -1,
	})
	t.Cleanup(proxy.Close)
	use := func(base string) {
		parsed, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		backend.Store(parsed)
	}
	first, stopFirst := restartable(t, "old")
	use(first)
	page, id := openPage(t, proxy.URL, browsertest.Settings{Script: fast})
	second, _ := restartable(t, "new")
	use(second)
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
	binary, err := exec.LookPath("nginx")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatalf("find nginx: %v; run `make nginx` to install it", err)
		}
	}
	var address string
	if err := fixture.Choose(&address); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
		daemon off; master_process off; pid nginx.pid; error_log stderr;
		events {}
		http {
			access_log off;
			client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
			server { listen %s; location / { proxy_pass %s; %s } }
		}`, address, shared.replicas[0].Public, settings)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, binary, "-p", dir, "-c", path, "-e", "stderr")
	process.Stderr = t.Output()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = process.Wait() // it was killed
	})
	base = "http://" + address
	await.Until(t, browsertest.Patience, "nginx answers", func() bool {
		answer, err := http.Get(base + "/openapi.yaml")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return base
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
