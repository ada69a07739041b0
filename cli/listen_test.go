package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/logtest"
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

// listening is a running kubectl merchant listen.
type listening struct {
	t             *testing.T
	out, problems logtest.Buffer
	stop          context.CancelFunc
	ended         chan int
}

// listen runs it with a key of the caller's own. State is in the directory.
func (f *fakeFeed) listen(state string, args ...string) *listening {
	f.t.Helper()
	f.t.Setenv("API_KEY", fakeKey)
	return listen(f.t, state, append([]string{"listen", "--key-env", "--api-url", f.url}, args...)...)
}

// listen runs it until the test ends.
func listen(t *testing.T, state string, args ...string) *listening {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", state)
	ctx, cancel := context.WithCancel(t.Context())
	l := &listening{t: t, stop: cancel, ended: make(chan int, 1)}
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &l.out, ErrOut: &l.problems}
	go func() { l.ended <- Execute(ctx, "v1.2.3", streams, args) }()
	t.Cleanup(cancel)
	return l
}

// interrupt is Ctrl-C.
func (l *listening) interrupt() {
	l.t.Helper()
	l.stop()
	l.exits(terminal.ExitDone)
}

func (l *listening) exits(want int) {
	l.t.Helper()
	select {
	case code := <-l.ended:
		if code != want {
			l.t.Errorf("exit code %d, want %d\n%s", code, want, &l.problems)
		}
	case <-time.After(fixture.Patience):
		l.t.Fatalf("it does not end\n%s", &l.problems)
	}
}

func (l *listening) says(words string) {
	l.t.Helper()
	await.Until(l.t, fixture.Patience, "it says "+words, func() bool { return strings.Contains(l.problems.String(), words) })
}

var printedOrder = regexp.MustCompile(`<(\d+)>`)

// prints waits until the events were printed, and nothing else.
func (l *listening) prints(want ...string) {
	l.t.Helper()
	printed := func() (orders []string) {
		for _, found := range printedOrder.FindAllStringSubmatch(l.out.String(), -1) {
			orders = append(orders, found[1])
		}
		return orders
	}
	await.Until(l.t, fixture.Patience, "it has printed "+strings.Join(want, ", "), func() bool { return len(printed()) >= len(want) })
	if diff := cmp.Diff(want, printed()); diff != "" {
		l.t.Errorf("printed (-want +got):\n%s", diff)
	}
}

// Events are printed once, in order, across a restart.
func TestListen_Restart(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	f.add(2)
	first := f.listen(state)
	first.says("Starting with the oldest event that is kept.")
	first.prints("1", "2")
	want := "2026-11-22 14:00:00  session.completed         12.50 EUR  order <1> & co  ps_abcdefgh2345T2xV9bLrYc8WdNeHq7\n"
	if line, _, _ := strings.Cut(first.out.String(), "\n"); line+"\n" != want {
		t.Errorf("printed %q, want %q", line, want)
	}
	first.interrupt()
	if !strings.HasSuffix(first.problems.String(), "Stopped. The next start goes on from here.\n") {
		t.Errorf("it says %s", &first.problems)
	}
	f.add(2)
	second := f.listen(state, "-o", "json")
	second.prints("3", "4")
	line, _, _ := strings.Cut(second.out.String(), "\n")
	if want := `{"id":"evt_3","cursor":"3","event":` + fakeEvent(3) + "}"; line != want {
		t.Errorf("printed %s, want %s", line, want)
	}
	second.interrupt()
	f.listen(t.TempDir(), "--from", "now").says("from now on")
}

// With --from now, what has happened is not printed; the position is kept all the same.
func TestListen_FromNow(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	f.add(3)
	l := f.listen(state, "--from", "now")
	f.waitForRead(3)
	f.add(1)
	l.prints("4")
	l.interrupt()
	f.add(1)
	again := f.listen(state, "--from", "now")
	again.prints("5")
	again.interrupt()
}

// Position and secret are for the eyes of their owner.
func TestListen_State(t *testing.T) {
	f, state := newFakeFeed(t), t.TempDir()
	receiver := newHook(t)
	l := f.listen(state, "--forward-to", receiver.url)
	l.says("Signing secret: whsec_")
	f.add(1)
	l.prints("1")
	l.interrupt()
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
	secret := l.secret()
	again := f.listen(state, "--forward-to", receiver.url)
	again.says("Going on after the last event of before.")
	again.interrupt()
	other := f.listen(state, "--forward-to", newHook(t).url)
	other.prints("1")
	other.interrupt()
	if again.secret() != secret || other.secret() == secret {
		t.Error("the secret changed after a restart, or two receivers have one")
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := f.listen(state, "--forward-to", receiver.url)
	broken.exits(terminal.ExitError)
	broken.says("Remove the file to start again")
}

func (l *listening) secret() string {
	l.t.Helper()
	found := regexp.MustCompile(`Signing secret: (whsec_\S+)`).FindStringSubmatch(l.problems.String())
	if found == nil {
		l.t.Fatalf("there is no secret in %s", &l.problems)
	}
	return found[1]
}

// hook is a developer's receiver of webhooks.
type hook struct {
	url string

	mu       sync.Mutex
	statuses []int // of the next answers; then 204
	requests []hookRequest
}

type hookRequest struct {
	id, body string
	header   http.Header
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL + "/hooks"
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, hookRequest{r.Header.Get("webhook-id"), string(body), r.Header})
	status := http.StatusNoContent
	if len(h.statuses) > 0 {
		status, h.statuses = h.statuses[0], h.statuses[1:]
	}
	if status == http.StatusFound {
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
	}
	w.WriteHeader(status)
}

func (h *hook) answer(statuses ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = statuses
}

func (h *hook) received() []hookRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

func (h *hook) ids() (ids []string) {
	for _, request := range h.received() {
		ids = append(ids, request.id)
	}
	return ids
}

// What is forwarded is what the API said, byte for byte, and verifies with the printed secret.
func TestListen_Forwards(t *testing.T) {
	f, h := newFakeFeed(t), newHook(t)
	l := f.listen(t.TempDir(), "--forward-to", h.url)
	f.add(3)
	l.prints("1", "2", "3")
	l.interrupt()
	webhook, err := standardwebhooks.NewWebhook(l.secret())
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range h.received() {
		if want := fakeEvent(i + 1); request.id != fmt.Sprintf("evt_%d", i+1) || request.body != want {
			t.Errorf("got %s %s, want %s", request.id, request.body, want)
		}
		if err := webhook.Verify([]byte(request.body), request.header); err != nil {
			t.Error(err)
		}
		if got := request.header.Get("Content-Type") + " " + request.header.Get("User-Agent"); got != "application/json merchant-operator-webhooks" {
			t.Errorf("headers %s", got)
		}
	}
}

// An event is posted until it is taken, before the next one, and after a restart too.
func TestListen_ForwardsAgain(t *testing.T) {
	f, h, state := newFakeFeed(t), newHook(t), t.TempDir()
	h.answer(http.StatusInternalServerError, http.StatusFound, http.StatusOK, http.StatusGone, http.StatusGone)
	f.add(2)
	l := f.listen(state, "--forward-to", h.url)
	l.says("it answers 500")
	l.says("it answers 302")
	l.says("The receiver takes events again.")
	l.says("has not taken evt_2: it answers 410")
	l.interrupt()
	h.answer()
	again := f.listen(state, "--forward-to", h.url)
	again.prints("2")
	again.interrupt()
	if ids := slices.Compact(h.ids()); !slices.Equal(ids, []string{"evt_1", "evt_2"}) {
		t.Errorf("received %v", h.ids())
	}
	if len(h.ids()) < 5 {
		t.Errorf("received only %v", h.ids())
	}
}

// A payment must not go to a stranger because of a typing error.
func TestListen_ForwardsToThisMachineOnly(t *testing.T) {
	f := newFakeFeed(t)
	for _, url := range []string{"http://shop.example/hooks", "http://203.0.113.7/hooks", "https://localhost.evil.example/", "http://[2001:db8::1]:3000/", "http://0x7f.1/"} {
		l := f.listen(t.TempDir(), "--forward-to", url)
		l.exits(terminal.ExitUsage)
		l.says("must be an address of this machine")
	}
	for _, url := range []string{"localhost:3000", "ftp://localhost/", "http://user@localhost/", "http:///hooks"} {
		l := f.listen(t.TempDir(), "--forward-to", url)
		l.exits(terminal.ExitUsage)
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
	l.prints("1")
	for _, words := range []string{"the API answers 503: temporarily unavailable (X-Request-Id abc)", "answers 429", "does not answer", "The API answers again."} {
		l.says(words)
	}
	l.interrupt()
}

// Without room for another wait it polls.
func TestListen_PollsIfItMayNotWait(t *testing.T) {
	f := newFakeFeed(t)
	f.add(1)
	f.next(failing(http.StatusServiceUnavailable, `{"error":"too many waits"}`, "Error-Code", "too_many_streams", "Retry-After", "3600"))
	l := f.listen(t.TempDir())
	l.prints("1")
	l.interrupt()
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
			first.prints("1", "2")
			f.waitForRead(2)
			first.interrupt()
			f.add(1)
			f.next(test.answer)
			l := f.listen(state)
			l.says("EVENTS ARE LOST")
			l.says(test.says)
			l.prints(test.prints...)
			l.interrupt()
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
			l.exits(terminal.ExitError)
			l.says(test.says)
			if text := l.problems.String() + l.out.String(); strings.Contains(text, fakeKey) {
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

// A developer without a tunnel gets what the merchant's webhook gets, byte for byte, also after the key was rotated.
func TestListen_RealFeed(t *testing.T) {
	deployed, local := newHook(t), newHook(t)
	s := newSale(t, func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: deployed.url, Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, v1alpha1.EventSessionFailed}}
	})
	state := t.TempDir()
	l := listen(t, state, "listen", "acme", "--kubeconfig", admin, "-n", s.Namespace, "--forward-to", local.url)
	l.says("Listening to live events of Acme acme")
	for _, order := range []string{"<1> & co", "<2>"} {
		s.settle(s.create(order, 1250), "COMPLETED", 1250)
	}
	l.prints("1", "2")
	run(t, s.Namespace, "keys rotate till --overlap 0s").want(t, terminal.ExitDone)
	s.key = s.Delivered("till-key", "apiKey")
	eventuallyMe(t, s.tenant, s.key, http.StatusOK)
	s.settle(s.create("<3>", 99), "FAILED", 99)
	l.prints("1", "2", "3")
	l.interrupt()
	s.settle(s.create("<4>", 1250), "COMPLETED", 1250)
	again := listen(t, state, "listen", "acme", "--kubeconfig", admin, "-n", s.Namespace, "--forward-to", local.url)
	again.prints("4")
	again.interrupt()

	s.Eventually("the webhook has all", func() bool { return len(deployed.received()) >= 4 })
	want := map[string]string{}
	for _, request := range deployed.received() {
		want[request.id] = request.body
	}
	got := map[string]string{}
	for _, request := range local.received() {
		if strings.Contains(request.body, `"type":"key.rotated"`) {
			continue // the feed has all types, whatever the webhook gets
		}
		if _, twice := got[request.id]; twice {
			t.Errorf("%s came twice", request.id)
		}
		got[request.id] = request.body
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-webhook +listen):\n%s", diff)
	}
}
