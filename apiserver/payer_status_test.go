package apiserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/internal/session"
	fixturetest "github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const public = "/api/v1/public/sessions"

func TestPublicSession(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key := f.key("till", acme)
	r := f.start()
	body := `{"amountCents": 1250, "orderRef": "1001", "taxCents": 1, "tipCents": 2, "customerEmail": "ada@example.com"}`
	id := r.call(http.MethodPost, sessions, key, body).text("sessionId")

	want := map[string]any{"merchantName": "Acme acme", "amountCents": 1250.0, "status": "PENDING"}
	got := r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}

	// No key is looked at, and the payer keeps seeing what was agreed on.
	r.call(http.MethodGet, public+"/"+id, "nonsense", "").want(t, http.StatusOK)
	acme.DisplayName, acme.State = "Renamed", v1alpha1.MerchantSuspended
	f.changeMerchant(acme)
	eventually(t, "the merchant is suspended", func() bool {
		return r.call(http.MethodGet, me, key, "").status == http.StatusForbidden
	})
	got = r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("after the merchant's suspension (-want +got):\n%s", diff)
	}
}

func TestPublicSession_Expires(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	eventually(t, "the session is EXPIRED", func() bool {
		return r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK).text("status") == "EXPIRED"
	})
	if got := r.call(http.MethodGet, sessions+"/"+id, key, ""); got.text("status") != "EXPIRED" {
		t.Errorf("the merchant reads %s", got.raw)
	}
}

// What names no session is answered alike, whatever is wrong with it.
func TestPublicSession_NotFound(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for name, segment := range roomtest.UnknownIDs(id) {
		t.Run(name, func(t *testing.T) {
			r.call(http.MethodGet, public+"/"+segment, "", "").wantError(t, http.StatusNotFound, "session not found")
		})
	}
}

func TestPublicSession_ForwardedFor(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(trustLoopback)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense").
		wantError(t, http.StatusBadRequest, "X-Forwarded-For is malformed")
	r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense, 203.0.113.7").want(t, http.StatusOK)
}

func TestPublicSession_WaitAndAccept(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	for _, query := range []string{"wait=", "wait=26", "wait=-1", "wait=1.5", "wait=1s", "wait=+1", "wait=%201", "wait=1&wait=2", "wait=99999999999999999999", "wait=%D9%A1"} {
		r.call(http.MethodGet, public+"/"+id+"?"+query, "", "").
			wantError(t, http.StatusBadRequest, "wait must be an integer from 0 to 25, in seconds")
	}
	r.call(http.MethodGet, public+"/x?wait=x", "", "").wantError(t, http.StatusNotFound, "session not found")
	for _, query := range []string{"?", "?Wait=x", "?waiting=x", "?x=1&wait=0", "?%zz"} {
		r.call(http.MethodGet, public+"/"+id+query, "", "").want(t, http.StatusOK)
	}
	for _, accept := range []string{"*/*", "text/*", "application/json", "text/event-stream;q=0", "x-text/event-stream-not", ","} {
		got := r.call(http.MethodGet, public+"/"+id, "", "", "Accept", accept).want(t, http.StatusOK)
		if got.header.Get("Content-Type") != "application/json" {
			t.Errorf("Accept: %s gets %s", accept, got.header.Get("Content-Type"))
		}
	}
	for _, accept := range []string{"text/event-stream", "Text/Event-Stream", "application/json;q=0.5, text/event-stream;q=0.9"} {
		if s := r.stream(id, "Accept", accept); s.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("Accept: %s gets %s", accept, s.Header.Get("Content-Type"))
		}
	}
	for _, headers := range [][]string{{"Accept", "text/event-stream"}, {}} {
		got := r.call(http.MethodHead, public+"/"+id+"?wait=25", "", "", headers...).want(t, http.StatusOK)
		if len(got.raw) > 0 || got.header.Get("Session-Expires-In") == "" {
			t.Errorf("HEAD: %v %s", got.header, got.raw)
		}
	}
	if metrics := plain(t, http.MethodGet, r.ops+"/metrics", "").raw; strings.Contains(string(metrics), `status="0"`) {
		t.Error("a request is counted without its status")
	}
}

// keyOn publishes a merchant whose sessions are on one primary of a Redis Cluster, and a key of it.
func (f *fixture) keyOn(servers []*redistest.Server, primary int) string {
	f.t.Helper()
	inspect := storetest.Inspect(f.t, servers[0])
	for i := 0; ; i++ {
		name := fmt.Sprintf("shop-%d", i)
		bucket := storetest.Tag(published.ID(types.UID(f.namespace + "/" + name)))
		if slot := int(inspect.ClusterKeySlot(f.t.Context(), bucket).Val()); slot*len(servers)/storetest.Slots == primary {
			return f.key(name+"-till", f.merchant(name))
		}
	}
}

// A primary of a Redis Cluster is frozen under a crowd of its payers: those whose sessions are on another one are served meanwhile.
func TestPublicSession_SilentPrimary(t *testing.T) {
	servers := storetest.StartCluster(t)
	f := newFixture(t)
	keys := []string{f.keyOn(servers, 0), f.keyOn(servers, 1)}
	r := f.start(func(o *apiserver.Options) {
		o.RedisURL, o.RedisTimeout = "redis+cluster://"+servers[0].Addr(), 10*time.Second
	})
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = r.call(http.MethodPost, sessions, key, charge1250).want(t, http.StatusCreated).text("sessionId")
		r.call(http.MethodGet, public+"/"+ids[i], "", "").want(t, http.StatusOK)
	}
	servers[0].Pause()
	t.Cleanup(servers[0].Resume)
	// Payers wait for 5 s at most, so those who are to be served are few: a busy machine serves them in time. The others are more than have a
	// place in all queues together.
	const served, refused = 20, 100
	type crowd struct {
		asking         sync.WaitGroup
		sent, answered atomic.Int64
	}
	ask := func(c *crowd, payers int, id string, want int) {
		trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { c.sent.Add(1) }}
		for range payers {
			c.asking.Go(func() {
				request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, r.url+public+"/"+id, http.NoBody)
				if err != nil {
					t.Error(err)
				} else if r.send(request).status == want {
					c.answered.Add(1)
				}
			})
		}
	}
	var frozen, healthy crowd
	ask(&frozen, refused, ids[0], http.StatusServiceUnavailable)
	eventually(t, "the payers of the frozen primary have asked", func() bool { return frozen.sent.Load() == refused })
	ask(&healthy, served, ids[1], http.StatusOK)
	healthy.asking.Wait()
	frozen.asking.Wait()
	if healthy.answered.Load() != served || frozen.answered.Load() != refused {
		t.Errorf("%d of %d payers of a healthy primary were served, and %d of %d of the frozen one refused",
			healthy.answered.Load(), served, frozen.answered.Load(), refused)
	}
}

func TestLongPoll(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r, other := f.start(), f.start()
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")

	got := r.call(http.MethodGet, public+"/"+id+"?wait=0", "", "").want(t, http.StatusOK)
	if left, err := strconv.Atoi(got.header.Get("Session-Expires-In")); err != nil || got.text("status") != "PENDING" || left < 800 || left > 900 {
		t.Errorf("%s, expires in %q", got.raw, got.header.Get("Session-Expires-In"))
	}
	if got := r.call(http.MethodGet, public+"/"+id+"?wait=6", "", ""); got.text("status") != "PENDING" || got.header.Get("Session-Expires-In") == "" {
		t.Errorf("after the wait: %s, expires in %q", got.raw, got.header.Get("Session-Expires-In"))
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			got := r.call(http.MethodGet, public+"/"+id+"?wait=25", "", "")
			if got.text("status") != "COMPLETED" || got.header.Get("Session-Expires-In") != "" {
				t.Errorf("%d %s", got.status, got.raw)
			}
		})
	}
	eventually(t, "three wait", func() bool { return r.metric("merchant_operator_streams") == "3" })
	eventually(t, "none of them is in flight", func() bool { return r.metric("merchant_operator_http_requests_in_flight") == "0" })
	other.report(id, rail, paid(1250)).want(t, http.StatusOK)
	waiting.Wait()
	if got := r.call(http.MethodGet, public+"/"+id+"?wait=25", "", ""); got.text("status") != "COMPLETED" {
		t.Errorf("a wait after the end: %s", got.raw)
	}
	// A wait is not the time that a request takes, which a busy machine makes longer, but not by seconds.
	const slow = `merchant_operator_http_request_duration_seconds_bucket{method="GET",route="/api/v1/public/sessions/{id}",status="200",le="5"}`
	const all = `merchant_operator_http_request_duration_seconds_count{method="GET",route="/api/v1/public/sessions/{id}",status="200"}`
	if r.metric(slow) != r.metric(all) || r.metric(all) != "6" {
		t.Errorf("%s of %s requests took less than the wait of the second", r.metric(slow), r.metric(all))
	}
}

// A client that waits and never sends its body does not keep its connection.
func TestLongPoll_BodyNeverComes(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.WriteTimeout = 100 * time.Millisecond })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	for name, path := range map[string]string{"of a payer": public + "/" + id, "of a merchant": events} {
		t.Run(name, func(t *testing.T) {
			connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = connection.Close() }()
			_ = connection.SetReadDeadline(time.Now().Add(patience))
			if _, err := fmt.Fprintf(connection, "GET %s?wait=1 HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n", path, key); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(connection); err != nil {
				t.Errorf("the connection is still open, with the answer %q: %v", answer, err)
			}
		})
	}
}

// stream is an open stream of a session's status.
type stream struct {
	t *testing.T
	*http.Response

	lines *bufio.Scanner
}

// stream opens a stream, or gets another answer. Headers are pairs of name and value.
func (r *replica) stream(id string, headers ...string) *stream {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+public+"/"+id, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{Transport: streams, Timeout: 2 * patience}).Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = response.Body.Close() })
	return &stream{r.t, response, bufio.NewScanner(response.Body)}
}

// event is one server-sent event.
type event struct{ kind, id, data string }

// streams keeps no connection: each stream has one of its own.
var streams = &http.Transport{DisableKeepAlives: true}

// next returns the next event; false: the stream has ended.
func (s *stream) next() (event, bool) {
	s.t.Helper()
	var got event
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			got.kind = value
		case "id":
			got.id = value
		case "data":
			got.data = value
		case "retry":
		case "":
			return got, true
		default:
			s.t.Fatalf("unknown field %q", s.lines.Text())
		}
	}
	return got, false
}

func (s *stream) wantStatus(status string) {
	s.t.Helper()
	got, ok := s.next()
	for ok && got.kind == "expires-in" {
		got, ok = s.next()
	}
	if want := fmt.Sprintf(`{"merchantName":"Acme acme","amountCents":1250,"status":"%s"}`, status); !ok || got != (event{"status", status, want}) {
		s.t.Fatalf("the stream says %+v, %t; want %s", got, ok, status)
	}
}

func (s *stream) wantEnd() {
	s.t.Helper()
	got, more := s.next()
	for more && got.kind == "expires-in" {
		got, more = s.next()
	}
	if more || s.lines.Err() != nil {
		s.t.Fatalf("the stream goes on with %+v, %v", got, s.lines.Err())
	}
}

func TestStream(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	briefly := f.key("briefly", f.merchant("acme", func(r *published.MerchantRecord) {
		r.MerchantID, r.Name, r.Sessions.LifetimeSeconds = published.ID("brief"), "brief", 10 // a busy machine sees it pending
	}))
	r, other := f.start(), f.start()
	for status, end := range map[string]func(id string){
		"COMPLETED": func(id string) { other.report(id, rail, paid(1250)).want(t, http.StatusOK) },
		"FAILED":    func(id string) { other.report(id, rail, failure(1250)).want(t, http.StatusOK) },
		"CANCELLED": func(id string) {
			other.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusOK)
		},
		"EXPIRED": func(string) {},
	} {
		t.Run(status, func(t *testing.T) {
			with := key
			if status == "EXPIRED" {
				with = briefly
			}
			id := r.call(http.MethodPost, sessions, with, charge1250).text("sessionId")
			s := r.stream(id)
			if s.StatusCode != http.StatusOK || s.Header.Get("Content-Type") != "text/event-stream" ||
				s.Header.Get("Cache-Control") != "no-store" || s.Header.Get("X-Accel-Buffering") != "no" || s.Header.Get("Session-Expires-In") == "" {
				t.Errorf("%d %v", s.StatusCode, s.Header)
			}
			s.wantStatus("PENDING")
			if got, _ := s.next(); got.kind != "expires-in" || got.data == "" || got.data == "0" {
				t.Errorf("after PENDING comes %+v", got)
			}
			end(id)
			s.wantStatus(status)
			s.wantEnd()

			late := r.stream(id)
			late.wantStatus(status)
			late.wantEnd()
			// EventSource comes back after each end; now it does not come a third time.
			if again := r.stream(id, "Last-Event-ID", status); again.StatusCode != http.StatusNoContent {
				t.Errorf("a client that knows the end gets %d", again.StatusCode)
			}
			if again := r.stream(id, "Last-Event-ID", "PENDING"); again.StatusCode != http.StatusOK {
				t.Errorf("a client that does not gets %d", again.StatusCode)
			}
		})
	}
	eventually(t, "no stream is left", func() bool { return r.metric("merchant_operator_streams") == "0" })
}

// Two merchants may be in one bucket, and get its messages together.
func TestStream_OwnSessionOnly(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	create := func() string { return r.call(http.MethodPost, sessions, key, charge1250).text("sessionId") }
	mine, theirs := create(), create()
	s, other := r.stream(mine), r.stream(theirs)
	s.wantStatus("PENDING")
	other.wantStatus("PENDING")
	r.report(theirs, rail, paid(1250)).want(t, http.StatusOK)
	other.wantStatus("COMPLETED")
	// Other messages change nothing.
	c := storetest.Inspect(t, sharedRedis)
	for _, message := range []string{mine, "ps_", "", strings.Repeat("x", 1<<16), `{"status":"COMPLETED"}`} {
		if n := c.Publish(t.Context(), storetest.BucketTag(parseBucket(t, mine))+"ended", message).Val(); n == 0 {
			t.Error("nobody is subscribed")
		}
	}
	r.call(http.MethodPost, sessions+"/"+mine+"/cancel", key, "").want(t, http.StatusOK)
	s.wantStatus("CANCELLED")
}

func parseBucket(t *testing.T, id string) session.Bucket {
	t.Helper()
	parsed, err := session.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Bucket()
}

// Every client speaks HTTP/1.1, and some proxies do not.
func TestStream_HTTP10(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(connection, "GET %s/%s HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n", public, id)
	lines := bufio.NewReader(connection)
	for line := ""; !strings.Contains(line, `"status":"PENDING"`); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusOK)
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), `"status":"CANCELLED"`) {
		t.Errorf("%s, %v", rest, err)
	}
}

func TestStream_Heartbeats(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.Heartbeat = 10 * time.Millisecond })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	s := r.stream(id)
	s.wantStatus("PENDING")
	for last := "900"; last > "898"; { // as seconds pass
		got, ok := s.next()
		if !ok || got.kind != "expires-in" || got.id != "" || got.data > last {
			t.Fatalf("%+v, %t, after %s", got, ok, last)
		}
		last = got.data
	}
}

// The clients of a replaced replica come back together. Their heartbeats must not, or the API is slow each time.
func TestStream_HeartbeatsAreSpread(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.Heartbeat = 4 * patience })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	first := make(chan string, 50) // one of them has its first heartbeat within the patience
	for range cap(first) {
		s := r.stream(id)
		s.wantStatus("PENDING")
		s.next() // expires-in of the status
		go func() { got, _ := s.next(); first <- got.kind }()
	}
	select {
	case kind := <-first:
		if kind != "expires-in" {
			t.Errorf("got %q", kind)
		}
	case <-time.After(patience):
		t.Error("no stream had a heartbeat")
	}
}

// EventSource would come back at once from all clients of a replica that goes.
func TestStream_Drain(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.Drain = time.Second })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	open := []*stream{r.stream(id), r.stream(id), r.stream(id)}
	for _, s := range open {
		s.wantStatus("PENDING")
	}
	answered := make(chan result, 1)
	go func() { answered <- r.call(http.MethodGet, public+"/"+id+"?wait=25", "", "") }()
	eventually(t, "four wait", func() bool { return r.metric("merchant_operator_streams") == "4" })
	r.cancel()
	for _, s := range open {
		s.wantEnd()
	}
	if got := <-answered; got.text("status") != "PENDING" {
		t.Errorf("a long poll gets %d %s", got.status, got.raw)
	}
	if err := r.wantEnd(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestStream_Limits(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(trustLoopback, func(o *apiserver.Options) {
		o.Streams.Max, o.Streams.MaxPerAddress, o.MaxConnections, o.Streams.Drain = 3, 2, 2, 0
	})
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	refused := func(address, message string) {
		t.Helper()
		for _, ask := range [][]string{{"", "Accept", "text/event-stream"}, {"?wait=5"}} {
			got := r.call(http.MethodGet, public+"/"+id+ask[0], "", "", append(ask[1:], "X-Forwarded-For", address)...)
			got.wantError(t, http.StatusServiceUnavailable, message)
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	first := r.stream(id, "X-Forwarded-For", "203.0.113.7")
	first.wantStatus("PENDING")
	r.stream(id, "X-Forwarded-For", "203.0.113.7").wantStatus("PENDING")
	refused("203.0.113.7", "too many open streams of your address; close some, or poll")
	r.stream(id, "X-Forwarded-For", "203.0.113.8").wantStatus("PENDING")
	refused("203.0.113.9", "too many open streams; poll, or retry after the time in Retry-After")

	// Three streams take none of the two connections, and polling goes on.
	for range 3 {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
		r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "203.0.113.9").want(t, http.StatusOK)
	}
	r.call(http.MethodGet, public+"/"+otherID(id)+"?wait=5", "", "", "X-Forwarded-For", "203.0.113.9").want(t, http.StatusServiceUnavailable)
	_ = first.Body.Close()
	eventually(t, "there is room again", func() bool { return r.metric("merchant_operator_streams") == "2" })
	r.call(http.MethodGet, public+"/"+otherID(id)+"?wait=5", "", "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusNotFound)
	r.stream(id, "X-Forwarded-For", "203.0.113.7").wantStatus("PENDING")
	for limit, want := range map[string]string{"replica": "3", "address": "2"} {
		if got := r.metric(`merchant_operator_streams_refused_total{limit="` + limit + `"}`); got != want {
			t.Errorf("%s refused by the limit of the %s, want %s", got, limit, want)
		}
	}
	// What one client does must not look like a failure of the service.
	if got := r.metric(`merchant_operator_http_request_duration_seconds_count{method="GET",route="/api/v1/public/sessions/{id}",status="503"}`); got != "" {
		t.Errorf("%s responses are counted as errors", got)
	}
}

// otherID is an id in the same bucket that nobody has.
func otherID(id string) string { return id[:len(id)-18] + strings.Repeat("0", 18) }

func TestStream_RateLimit(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.PublicRateLimit.RequestsPerSecond, o.PublicRateLimit.Burst = 1, 2 })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	open := 0
	for ; ; open++ { // a machine that is busy for a second opens more than the burst
		s := r.stream(id)
		if s.StatusCode != http.StatusOK {
			refused := read(t, s.Response)
			publicDocument.Check(t, s.Request, refused.status, refused.header, refused.raw)
			refused.want(t, http.StatusTooManyRequests)
			break
		}
		s.wantStatus("PENDING")
		if open > 100 {
			t.Fatal("there is no limit")
		}
	}
	if open < 2 {
		t.Errorf("%d streams are open, want the burst", open)
	}
	eventually(t, "refused requests hold no place", func() bool { return r.metric("merchant_operator_streams") == strconv.Itoa(open) })
}

// A client that does not read must not hold its place. With larger segments the server's kernel would hold megabytes for it.
func TestStream_ClientDoesNotRead(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) {
		o.Streams.Heartbeat, o.Streams.WriteTimeout = time.Microsecond, time.Second
	})
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		}), err)
	}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	fmt.Fprintf(connection, "GET %s/%s HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n", public, id)
	eventually(t, "the stream is open", func() bool { return r.metric("merchant_operator_streams") == "1" })
	eventually(t, "the stream is gone", func() bool { return r.metric("merchant_operator_streams") == "0" })
}

// restrictedURL lets a user of Redis do all but what the rule takes away.
func restrictedURL(t *testing.T, server *redistest.Server, rule string) string {
	t.Helper()
	c := storetest.Inspect(t, server)
	if err := c.Do(t.Context(), "ACL", "SETUSER", "restricted", "on", ">secret", "~{b*", "+@all", "allchannels", rule).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://restricted:secret@" + server.Addr()
}

// Without messages the state is right after the interval, and a session still ends.
func TestStream_LostMessages(t *testing.T) {
	server := redistest.Start(t)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.RedisURL, o.Streams.Reread = server.URL(), time.Second })
	mute := f.start(func(o *apiserver.Options) { o.RedisURL = restrictedURL(t, server, "resetchannels") })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	s := r.stream(id)
	s.wantStatus("PENDING")
	mute.report(id, rail, paid(1250)).want(t, http.StatusOK)
	s.wantStatus("COMPLETED")
	s.wantEnd()
	if got := r.metric(`merchant_operator_stream_changes_total{source="reread"}`); got != "1" {
		t.Errorf("%s changes were found by a reread", got)
	}
	// The mute replica cannot subscribe either. It says so, and its own streams are late.
	id = r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	mute.stream(id).wantStatus("PENDING")
	eventually(t, "the lost subscription is reported", func() bool {
		return mute.metric(`merchant_operator_redis_subscriptions_lost_total`) != "0" &&
			mute.metric(`merchant_operator_redis_subscriptions{state="wanted"}`) == "1" &&
			mute.metric(`merchant_operator_redis_subscriptions{state="active"}`) == "0"
	})
	eventually(t, "it is logged", func() bool { // after it is counted
		logged := mute.log.String()
		return strings.Contains(logged, "lost the subscription to the ends of sessions") && strings.Contains(logged, "NOPERM")
	})
}

// The wire between a replica and Redis is cut while a session ends. Only the new subscription makes the replica look.
func TestStream_LostSubscription(t *testing.T) {
	server := redistest.Start(t)
	var listen string
	if err := fixturetest.Choose(&listen); err != nil {
		t.Fatal(err)
	}
	wire := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "wire", listen, server.Addr())
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Stop)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.RedisURL, o.Streams.Reread = "redis://"+listen, time.Hour })
	other := f.start(func(o *apiserver.Options) { o.RedisURL = server.URL() })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	s := r.stream(id)
	s.wantStatus("PENDING")
	const active = `merchant_operator_redis_subscriptions{state="active"}`
	eventually(t, "it is subscribed", func() bool { return r.metric(active) == "1" })
	wire.Stop()
	eventually(t, "the loss is noticed", func() bool { return r.metric(active) == "0" })
	other.report(id, rail, paid(1250)).want(t, http.StatusOK)
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	s.wantStatus("COMPLETED")
	s.wantEnd()
}
