package payments

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/listentest"
)

// fakeFeed is an API whose feed a test fills and breaks. The cursor of an event is its number.
type fakeFeed struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	events  int
	added   chan struct{}      // closed by the next add
	answers []http.HandlerFunc // of the next reads, instead of the feed
	reads   []string           // the query of each
}

func newFakeFeed(t *testing.T) *fakeFeed {
	t.Helper()
	f := &fakeFeed{t: t, added: make(chan struct{})}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fakeFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+fakeKey {
		http.Error(w, `{"error":"missing or invalid API key"}`, http.StatusUnauthorized)
		return
	}
	if r.URL.Path == fixture.Me {
		_, _ = io.WriteString(w, `{"livemode":true,"merchant":{"id":"mer_abcdefgh2345","name":"Acme","timeZone":"Europe/Berlin"}}`)
		return
	}
	f.mu.Lock()
	f.reads = append(f.reads, r.URL.RawQuery)
	var answer http.HandlerFunc
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	wait, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	f.mu.Lock()
	events, added := f.events, f.added
	f.mu.Unlock()
	if events <= after && wait > 0 { // held until there is an event or the caller has gone
		select {
		case <-r.Context().Done():
			return
		case <-added:
			f.mu.Lock()
			events = f.events
			f.mu.Unlock()
		}
	}
	items := []string{}
	for n := after + 1; n <= events; n++ {
		items = append(items, fmt.Sprintf(`{"id":"evt_%d","cursor":"%d","event":%s}`, n, n, fakeEvent(n)))
	}
	fmt.Fprintf(w, `{"items":[%s],"cursor":"%d"}`, strings.Join(items, ","), max(events, after))
}

// fakeEvent is the body of a webhook, with characters that a second encoding would change.
func fakeEvent(n int) string {
	return fmt.Sprintf(`{"type":"session.completed","livemode":true,"timestamp":"2026-11-22T13:00:00.%03dZ","data":{"sessionId":"ps_abcdefgh2345T2xV9bLrYc8WdNeHq7","orderRef":"<%d> & co","amountCents":1250,"currency":"EUR"}}`, n, n)
}

func (f *fakeFeed) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events += n
	close(f.added)
	f.added = make(chan struct{})
}

// waitForRead waits until a read after the event has arrived. An interrupted command leaves no other one on its way, which would take what next gives to a
// later command.
func (f *fakeFeed) waitForRead(after int) {
	f.t.Helper()
	await.Until(f.t, fixture.Patience, fmt.Sprintf("a read after %d", after), func() bool {
		return slices.ContainsFunc(f.queries(), func(query string) bool {
			return strings.Contains(query, fmt.Sprintf("after=%d&", after)) && strings.Contains(query, "wait=")
		})
	})
}

// next has reads answered by something else than the feed.
func (f *fakeFeed) next(answers ...http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, answers...)
}

func (f *fakeFeed) queries() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reads)
}

// listen runs it with a key of the caller's own. State is in the directory.
func (f *fakeFeed) listen(state string, args ...string) *listentest.Listening {
	f.t.Helper()
	f.t.Setenv("API_KEY", fakeKey)
	return listentest.Start(f.t, execute, state, append([]string{"listen", "--key-env", "--api-url", f.url}, args...)...)
}

// Events are printed once, in order, across a restart.
func TestListen_Restart(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	f.add(2)
	first := f.listen(state)
	first.Says("Starting with the oldest event that is kept.")
	first.Prints("1", "2")
	want := "2026-11-22 14:00:00  session.completed         12.50 EUR  order <1> & co  ps_abcdefgh2345T2xV9bLrYc8WdNeHq7\n"
	if line, _, _ := strings.Cut(first.Out.String(), "\n"); line+"\n" != want {
		t.Errorf("printed %q, want %q", line, want)
	}
	first.Interrupt()
	if !strings.HasSuffix(first.Problems.String(), "Stopped. The next start goes on from here.\n") {
		t.Errorf("it says %s", &first.Problems)
	}
	f.add(2)
	second := f.listen(state, "-o", "json")
	second.Prints("3", "4")
	line, _, _ := strings.Cut(second.Out.String(), "\n")
	if want := `{"id":"evt_3","cursor":"3","event":` + fakeEvent(3) + "}"; line != want {
		t.Errorf("printed %s, want %s", line, want)
	}
	second.Interrupt()
	f.listen(t.TempDir(), "--from", "now").Says("from now on")
}

// With --from now, what has happened is not printed; the position is kept all the same.
func TestListen_FromNow(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	f.add(3)
	l := f.listen(state, "--from", "now")
	f.waitForRead(3)
	f.add(1)
	l.Prints("4")
	l.Interrupt()
	f.add(1)
	again := f.listen(state, "--from", "now")
	again.Prints("5")
	again.Interrupt()
}

// Position and secret are for the eyes of their owner.
func TestListen_State(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	receiver := listentest.NewHook(t)
	l := f.listen(state, "--forward-to", receiver.URL)
	l.Says("Signing secret: whsec_")
	f.add(1)
	l.Prints("1")
	l.Interrupt()
	files, err := filepath.Glob(filepath.Join(state, cluster.FieldOwner, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files are %v: %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || strings.Contains(string(text), fakeKey) {
		t.Errorf("the state has the API key: %v", err)
	}
	// The secret stays; another receiver has its own position and secret.
	secret := l.Secret()
	again := f.listen(state, "--forward-to", receiver.URL)
	again.Says("Going on after the last event of before.")
	again.Interrupt()
	other := f.listen(state, "--forward-to", listentest.NewHook(t).URL)
	other.Prints("1")
	other.Interrupt()
	if again.Secret() != secret || other.Secret() == secret {
		t.Error("the secret changed after a restart, or two receivers have one")
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := f.listen(state, "--forward-to", receiver.URL)
	broken.Exits(terminal.ExitError)
	broken.Says("Remove the file to start again")
}

// What is forwarded is what the API said, byte for byte, and verifies with the printed secret.
func TestListen_Forwards(t *testing.T) {
	f, h := newFakeFeed(t), listentest.NewHook(t)
	l := f.listen(t.TempDir(), "--forward-to", h.URL)
	f.add(3)
	l.Prints("1", "2", "3")
	l.Interrupt()
	webhook, err := standardwebhooks.NewWebhook(l.Secret())
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range h.Received() {
		if want := fakeEvent(i + 1); request.ID != fmt.Sprintf("evt_%d", i+1) || request.Body != want {
			t.Errorf("got %s %s, want %s", request.ID, request.Body, want)
		}
		if err := webhook.Verify([]byte(request.Body), request.Header); err != nil {
			t.Error(err)
		}
		if got := request.Header.Get("Content-Type") + " " + request.Header.Get("User-Agent"); got != "application/json merchant-operator-webhooks" {
			t.Errorf("headers %s", got)
		}
	}
}

// An event is posted until it is taken, before the next one, and after a restart too.
func TestListen_ForwardsAgain(t *testing.T) {
	f, h, state := newFakeFeed(t), listentest.NewHook(t), t.TempDir()
	h.Answer(http.StatusInternalServerError, http.StatusFound, http.StatusOK, http.StatusGone, http.StatusGone)
	f.add(2)
	l := f.listen(state, "--forward-to", h.URL)
	l.Says("it answers 500")
	l.Says("it answers 302")
	l.Says("The receiver takes events again.")
	l.Says("has not taken evt_2: it answers 410")
	l.Interrupt()
	h.Answer()
	again := f.listen(state, "--forward-to", h.URL)
	again.Prints("2")
	again.Interrupt()
	if ids := slices.Compact(h.IDs()); !slices.Equal(ids, []string{"evt_1", "evt_2"}) {
		t.Errorf("received %v", h.IDs())
	}
	if len(h.IDs()) < 5 {
		t.Errorf("received only %v", h.IDs())
	}
}

// A payment must not go to a stranger because of a typing error.
func TestListen_ForwardsToThisMachineOnly(t *testing.T) {
	f := newFakeFeed(t)
	for _, url := range []string{"http://shop.example/hooks", "http://203.0.113.7/hooks", "https://localhost.evil.example/", "http://[2001:db8::1]:3000/", "http://0x7f.1/"} {
		l := f.listen(t.TempDir(), "--forward-to", url)
		l.Exits(terminal.ExitUsage)
		l.Says("must be an address of this machine")
	}
	for _, url := range []string{"localhost:3000", "ftp://localhost/", "http://user@localhost/", "http:///hooks"} {
		l := f.listen(t.TempDir(), "--forward-to", url)
		l.Exits(terminal.ExitUsage)
	}
	if len(f.queries()) > 0 {
		t.Error("it reads events")
	}
}

// Whatever the API answers for a while, no event is lost or printed twice.
func TestListen_WaitsForTheAPI(t *testing.T) {
	f := newFakeFeed(t)
	f.add(1)
	f.next(
		abort, abort, // the first one is sent again by net/http
		failing(http.StatusOK, `{"items":[`),
		failing(http.StatusServiceUnavailable, `{"error":"temporarily unavailable"}`, "Retry-After", "1", "X-Request-Id", "abc"),
		failing(http.StatusTooManyRequests, `{"error":"too many requests"}`, "Retry-After", "1"),
	)
	l := f.listen(t.TempDir())
	l.Prints("1")
	for _, words := range []string{"the API answers 503: temporarily unavailable (X-Request-Id abc)", "answers 429", "does not answer", "The API answers again."} {
		l.Says(words)
	}
	l.Interrupt()
}

// Without room for another wait it polls.
func TestListen_PollsIfItMayNotWait(t *testing.T) {
	f := newFakeFeed(t)
	f.add(1)
	f.next(failing(http.StatusServiceUnavailable, `{"error":"too many waits"}`, "Error-Code", "too_many_streams", "Retry-After", "3600"))
	l := f.listen(t.TempDir())
	l.Prints("1")
	l.Interrupt()
	if got := f.queries(); !strings.Contains(got[0], "wait=25") || !strings.Contains(got[1], "wait=0") {
		t.Errorf("read with %v", got)
	}
}

// What nobody can read any more is said, and what is left goes on.
func TestListen_LostEvents(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		says   string
		prints []string
	}{
		"older than the history":     {failing(http.StatusGone, `{"error":"cursor too old"}`), "deleted by age", []string{"1", "2", "3"}},
		"lost by a failover":         {failing(http.StatusConflict, `{"error":"lost","cursor":"1"}`), "Redis lost its latest writes", []string{"2", "3"}},
		"lost, and nothing survived": {failing(http.StatusConflict, `{"error":"lost"}`), "Redis lost its latest writes", []string{"1", "2", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, state := newFakeFeed(t), t.TempDir()
			f.add(2)
			first := f.listen(state)
			first.Prints("1", "2")
			f.waitForRead(2)
			first.Interrupt()
			f.add(1)
			f.next(test.answer)
			l := f.listen(state)
			l.Says("EVENTS ARE LOST")
			l.Says(test.says)
			l.Prints(test.prints...)
			l.Interrupt()
		})
	}
}

// What only a person can change ends it at once.
func TestListen_PermanentError(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"the cursor of another account": {failing(http.StatusBadRequest, `{"error":"after is the cursor of another account"}`), "cursor of another account"},
		"a key that was rotated":        {failing(http.StatusUnauthorized, `{"error":"missing or invalid API key"}`), "explain-401"},
		"a merchant that is suspended":  {failing(http.StatusForbidden, `{"error":"the merchant is not active"}`, "Error-Code", "merchant_not_active"), "not active"},
		"an API without a feed":         {failing(http.StatusNotFound, `{"error":"not found"}`), "the version of this plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeFeed(t)
			f.next(test.answer)
			l := f.listen(t.TempDir())
			l.Exits(terminal.ExitError)
			l.Says(test.says)
			if text := l.Problems.String() + l.Out.String(); strings.Contains(text, fakeKey) {
				t.Error("the key is printed")
			}
		})
	}
}

func TestDescribeEvent(t *testing.T) {
	late := `{"type":"session.late_payment","timestamp":"2026-11-22T13:00:00.000Z","data":{"sessionId":"ps_1","amountCents":1250,"currency":"JPY","payment":{"amountCents":9}}}`
	for body, want := range map[string]string{
		late: "2026-11-22 13:00:00  session.late_payment      9 JPY  ps_1",
		`{"type":"key.rotated","timestamp":"2026-11-22T13:00:00.000Z","data":{"keyId":"abc"}}`:        "2026-11-22 13:00:00  key.rotated               abc",
		`{"type":"\u001b[2J","timestamp":"2026-11-22T13:00:00.000Z","data":{"keyId":"\u009b\u202e"}}`: "2026-11-22 13:00:00  \ufffd[2J                      \ufffd\ufffd",
		`[]`: "an event that this version cannot read: ",
	} {
		if got := describeEvent([]byte(body), time.UTC); !strings.HasPrefix(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
