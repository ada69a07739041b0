package apiserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// stream is an open stream of a session's status.
type stream struct {
	t *testing.T
	*http.Response

	lines *bufio.Scanner
}

// event is one server-sent event.
type event struct{ kind, id, data string }

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
			s.t.Fatalf("the stream has the line %q", s.lines.Text())
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

const charge1250 = `{"amountCents": 1250}`

func TestAStreamShowsTheStateAndThenTheEnd(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	briefly := f.key("briefly", f.merchant("acme", func(r *published.MerchantRecord) {
		r.MerchantID, r.Name, r.Sessions.LifetimeSeconds = published.ID("brief"), "brief", 2
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

// EventSource would come back at once from all clients of a replica that goes.
func TestADrainingReplicaEndsItsStreams(t *testing.T) {
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

func TestHeartbeats(t *testing.T) {
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
func TestHeartbeatsAreSpread(t *testing.T) {
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

// Every client speaks HTTP/1.1, and some proxies do not.
func TestAStreamOverHTTP10(t *testing.T) {
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

// Two merchants may be in one bucket, and get its messages together.
func TestAStreamShowsItsOwnSessionOnly(t *testing.T) {
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
	// What anybody else may publish changes nothing.
	c := storetest.Inspect(t, sharedRedis)
	for _, message := range []string{mine, "ps_", "", strings.Repeat("x", 1<<16), `{"status":"COMPLETED"}`} {
		if n := c.Publish(t.Context(), storetest.TagOf(bucketOf(t, mine))+"ended", message).Val(); n == 0 {
			t.Error("nobody is subscribed")
		}
	}
	r.call(http.MethodPost, sessions+"/"+mine+"/cancel", key, "").want(t, http.StatusOK)
	s.wantStatus("CANCELLED")
}

// A client that does not read must not hold its place. With larger segments the server's kernel would hold megabytes for it.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
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
