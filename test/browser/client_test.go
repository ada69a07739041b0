package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// One stream is enough: nothing else is requested.
func TestClient_OneStream(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	page.Until("the time left is known", "globalThis.expiresIn === 900")
	s.set("COMPLETED", none)
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	s.ended(page)
	if got := len(s.asked); got != 1 {
		t.Errorf("%d requests", got)
	}
}

// A stream that sends its status again says that something else is new. Neither its first status after a reconnect nor the end says so: all
// pages would be read at once when a replica has gone.
func TestClient_Repeat(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	s.repeat()
	awaitSeen(page, "PENDING of Acme, repeated")
	page.Do("globalThis.expiresIn = 0; watch.check()")
	page.Until("it reads a new stream", "globalThis.expiresIn === 900")
	s.repeat()
	awaitSeen(page, "PENDING of Acme"+strings.Repeat(", repeated", 2))
	s.set("COMPLETED", none)
	awaitSeen(page, "PENDING of Acme"+strings.Repeat(", repeated", 2)+", COMPLETED of Acme")
}

// A missing session ends the requests.
func TestClient_MissingSession(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("NOT_FOUND", none)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
	page.AllowErrors("404")
	page.Open(s.url)
	awaitSeen(page, "NOT_FOUND")
	s.ended(page)
}

// A stream that a proxy buffers becomes long polls, and later a stream again.
func TestClient_BufferedStream(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", buffered)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	s.awaitKinds("stream poll wait") // the first answer does not wait
	s.set("PENDING", none)
	s.awaitStream(page)
	s.set("COMPLETED", none)
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	s.ended(page)
}

// Long polls show the end.
func TestClient_LongPolls(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", buffered)
	page := s.open(fast)
	s.awaitKinds("stream poll wait")
	s.set("EXPIRED", buffered)
	awaitSeen(page, "PENDING of Acme, EXPIRED of Acme")
	s.ended(page)
}

// Refused streams become polls.
func TestClient_RefusedStreams(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", full)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
	page.AllowErrors("503")
	page.Open(s.url)
	awaitSeen(page, "PENDING of Acme")
	s.awaitKinds("stream poll stream") // it tried again
	s.set("PENDING", none)
	s.awaitStream(page)
	s.set("FAILED", none)
	awaitSeen(page, "PENDING of Acme, FAILED of Acme")
	s.ended(page)
}

// Retry-After is obeyed.
func TestClient_RetryAfter(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", limited)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast + `
		globalThis.sent = []; const send = fetch; globalThis.fetch = (...all) => { sent.push(performance.now()); return send(...all) }`})
	page.AllowErrors("429")
	page.Open(s.url)
	page.Until("it asked again", "sent.length > 2")
	if pause := browsertest.Eval[float64](page, "Math.min(sent[1] - sent[0], sent[2] - sent[1])"); pause < 9e3 {
		t.Errorf("asked again after %s", time.Duration(pause)*time.Millisecond)
	}
	awaitSeen(page, "offline")
	s.set("COMPLETED", none)
	awaitSeen(page, "offline, online, COMPLETED of Acme")
	s.ended(page)
}

// A silent stream is replaced.
func TestClient_SilentStream(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	s.mu.Lock()
	s.status = "COMPLETED" // without telling the stream
	s.mu.Unlock()
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if got := s.kinds(); got != "stream" {
		t.Errorf("asked for %s", got)
	}
	s.ended(page)
}

// What another server answers is no status.
func TestClient_ForeignAnswers(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]fault{"captive portal": portal, "proxy": notOurs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStatusServer(t)
			s.set("PENDING", is)
			page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
			page.AllowErrors("404")
			page.Open(s.url)
			awaitSeen(page, "offline")
			s.set("COMPLETED", none)
			awaitSeen(page, "offline, online, COMPLETED of Acme")
			s.ended(page)
		})
	}
}

// On these pages timers never fire: only the return itself can show the end.
func TestClient_Frozen(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	page.Freeze()
	s.awaitIdle(page)
	s.set("COMPLETED", none)
	page.Resume()
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if total, _, most := page.Requests(s.url + "/status"); total != 2 || most != 1 {
		t.Errorf("%d requests, %d at once", total, most)
	}
}

// A page that was offline is right when it returns.
func TestClient_Offline(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	page.AllowErrors("net::ERR_INTERNET_DISCONNECTED")
	page.SetOffline(true)
	awaitSeen(page, "PENDING of Acme, offline")
	s.set("CANCELLED", none)
	page.SetOffline(false)
	awaitSeen(page, "PENDING of Acme, offline, online, CANCELLED of Acme")
	if _, _, most := page.Requests(s.url + "/status"); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

// A stopped watch is silent.
func TestClient_Stopped(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	page.Do("watch.stop()")
	s.awaitIdle(page)
	s.set("COMPLETED", none)
	s.ended(page)
	awaitSeen(page, "PENDING of Acme")
}

// check() asks at once.
func TestClient_Check(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	s.mu.Lock()
	s.status = "COMPLETED" // without telling the stream
	s.mu.Unlock()
	page.Do("watch.check()")
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if _, _, most := page.Requests(s.url + "/status"); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

// statusServer is a public status with faults, and a page that follows it and remembers in globalThis.seen what it received.
type statusServer struct {
	t   testing.TB
	url string

	mu      sync.Mutex
	status  string
	changed chan struct{} // closed at the next change
	repeats int           // how often streams have been told to send their status again
	fault   fault
	asked   []string // stream, wait or poll
}

// fault is what is wrong between page and service.
type fault int

const (
	none     fault = iota
	buffered       // a proxy holds streams back until they end
	full           // streams and long polls are refused
	limited        // everything is refused, for ten seconds
	portal         // of a hotel: everything is a page
	notOurs        // a proxy has no backend and says 404
)

func newStatusServer(t *testing.T) *statusServer {
	t.Helper()
	s := &statusServer{t: t, status: "PENDING", changed: make(chan struct{})}
	client := repository.Read(t, "apiserver/payer/page/statusclient.js")
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><title>Status</title><link rel="icon" href="/icon.js"><script type="module" src="/client.js"></script>`)
	})
	mux.HandleFunc("/icon.js", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/client.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = fmt.Fprintf(w, `%s
			globalThis.seen = [];
			globalThis.watch = watchStatus('/status', {
				onStatus: ({ status, merchantName }) => seen.push([status, merchantName].filter(Boolean).join(' of ')),
				onExpiresIn: (seconds) => { globalThis.expiresIn = seconds },
				onRepeat: () => seen.push('repeated'),
				onConnection: (online) => seen.push(online ? 'online' : 'offline'),
			});`, client)
	})
	mux.HandleFunc("/status", s.answer)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { s.set("gone", none) }) // ends the streams
	s.url = server.URL
	return s
}

func (s *statusServer) set(status string, is fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.fault = status, is
	close(s.changed)
	s.changed = make(chan struct{})
}

// repeat has open streams send their status once more.
func (s *statusServer) repeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeats++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *statusServer) now() (status string, is fault, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.fault, s.changed
}

func (s *statusServer) answer(w http.ResponseWriter, r *http.Request) {
	kind := "poll"
	switch {
	case r.Header.Get("Accept") == "text/event-stream":
		kind = "stream"
	case r.URL.RawQuery == "wait=25":
		kind = "wait"
	case r.URL.RawQuery != "":
		s.t.Errorf("query %q", r.URL.RawQuery)
	}
	s.mu.Lock()
	s.asked = append(s.asked, kind)
	s.mu.Unlock()

	status, is, changed := s.now()
	switch {
	case is == portal:
		_, _ = fmt.Fprint(w, "<title>Welcome to the hotel</title>")
	case is == notOurs:
		http.Error(w, "default backend", http.StatusNotFound)
	case is == limited || is == full && kind != "poll":
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(map[bool]int{true: http.StatusTooManyRequests, false: http.StatusServiceUnavailable}[is == limited])
	case status == "NOT_FOUND":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"error":"session not found"}`)
	case kind == "stream":
		s.stream(w, r)
	default:
		if kind == "wait" && status == "PENDING" {
			select {
			case <-changed:
			case <-r.Context().Done():
			}
		}
		status, _, _ := s.now()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Session-Expires-In", "900")
		_, _ = fmt.Fprint(w, body(status))
	}
}

func body(status string) string {
	return fmt.Sprintf(`{"merchantName":"Acme","amountCents":1250,"status":%q}`, status)
}

func (s *statusServer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for last, lastRepeats := "", 0; ; {
		s.mu.Lock()
		status, is, changed, repeats := s.status, s.fault, s.changed, s.repeats
		s.mu.Unlock()
		if (status != last || repeats != lastRepeats) && is != buffered {
			last, lastRepeats = status, repeats
			_, _ = fmt.Fprintf(w, "retry: 3000\nevent: status\nid: %s\ndata: %s\n\nevent: expires-in\ndata: 900\n\n", status, body(status))
			_ = http.NewResponseController(w).Flush()
		}
		if status != "PENDING" {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// kinds has what was asked for, without repetition.
func (s *statusServer) kinds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Compact(slices.Clone(s.asked)), " ")
}

func (s *statusServer) awaitKinds(want string) {
	s.t.Helper()
	await.Seeing(s.t, browsertest.Patience, "the page asked for: "+want, func() (string, bool) {
		got := s.kinds()
		return got, strings.HasPrefix(got, want)
	})
}

func (s *statusServer) awaitStream(page *browsertest.Page) {
	s.t.Helper()
	await.Seeing(s.t, browsertest.Patience, "the page has a stream", func() (string, bool) {
		_, inFlight, _ := page.Requests(s.url + "/status")
		return s.kinds(), inFlight == 1 && strings.HasSuffix(s.kinds(), "stream")
	})
}

func (s *statusServer) awaitIdle(page *browsertest.Page) {
	s.t.Helper()
	await.Until(s.t, browsertest.Patience, "the page has no request in flight", func() bool {
		_, inFlight, _ := page.Requests(s.url + "/status")
		return inFlight == 0
	})
}

// fast makes a page on which time passes twenty times as fast, slow one whose timers do not fire within a test.
const (
	fast = `{
		const rate = 20, set = setTimeout, now = performance.now.bind(performance);
		globalThis.setTimeout = (done, ms) => set(done, ms / rate);
		performance.now = () => now() * rate;
	}`
	slow = `{ const set = setTimeout; globalThis.setTimeout = (done, ms) => set(done, ms * 100) }`
)

func (s *statusServer) open(time string) *browsertest.Page {
	s.t.Helper()
	page := sharedBrowser.NewPage(s.t, browsertest.Settings{Script: time})
	page.Open(s.url)
	return page
}

func awaitSeen(page *browsertest.Page, want string) {
	page.Until("the page saw: "+want, fmt.Sprintf("globalThis.seen?.join(', ') === %q", want))
}

// ended checks that there is nothing more to come, 20 seconds later on the page's clock.
func (s *statusServer) ended(page *browsertest.Page) {
	s.t.Helper()
	total, _, most := page.Requests(s.url + "/status")
	if most != 1 {
		s.t.Errorf("%d requests at once", most)
	}
	page.Do("globalThis.endedAt = performance.now(); dispatchEvent(new Event('online'))")
	page.Until("20 seconds have passed", "performance.now() > endedAt + 20e3")
	if later, inFlight, _ := page.Requests(s.url + "/status"); later != total || inFlight != 0 {
		s.t.Errorf("%d requests after the end, %d in flight", later-total, inFlight)
	}
}
