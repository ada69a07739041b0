package payer_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// behindProxy trusts the proxy that the requests of this room come from.
func behindProxy(t *testing.T) clientaddr.Resolver {
	t.Helper()
	clients, err := clientaddr.NewResolver([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	storetest.Must(t, err)
	return clients
}

const charge1250 = `{"amountCents": 1250}`

func TestPublicSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key := f.Key("till", acme)
	body := `{"amountCents": 1250, "orderRef": "1001", "taxCents": 1, "tipCents": 2, "customerEmail": "ada@example.com"}`
	id := f.call(http.MethodPost, sessionPath, key, body).Text("sessionId")

	want := map[string]any{"merchantName": "Acme acme", "amountCents": 1250.0, "status": "PENDING"}
	got := f.call(http.MethodGet, public+"/"+id, "", "").Want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.Header.Get("Cache-Control"))
	}

	// No key is looked at, and the payer keeps seeing what was agreed on.
	f.call(http.MethodGet, public+"/"+id, "nonsense", "").Want(t, http.StatusOK)
	acme.DisplayName, acme.State = "Renamed", v1alpha1.MerchantSuspended
	f.PublishMerchant(acme)
	got = f.call(http.MethodGet, public+"/"+id, "", "").Want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("after the merchant's suspension (-want +got):\n%s", diff)
	}
}

func TestPublicSession_Expires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	eventually(t, "the session is EXPIRED", func() bool {
		return f.call(http.MethodGet, public+"/"+id, "", "").Want(t, http.StatusOK).Text("status") == "EXPIRED"
	})
	if got := f.call(http.MethodGet, sessionPath+"/"+id, key, ""); got.Text("status") != "EXPIRED" {
		t.Errorf("the merchant reads %s", got.Raw)
	}
}

// What names no session is answered alike, whatever is wrong with it.
func TestPublicSession_NotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	for name, segment := range roomtest.UnknownIDs(id) {
		t.Run(name, func(t *testing.T) {
			f.call(http.MethodGet, public+"/"+segment, "", "").WantError(t, http.StatusNotFound, "session not found")
		})
	}
}

func TestPublicSession_ForwardedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) { o.Clients = behindProxy(t) })
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	f.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense").
		WantError(t, http.StatusBadRequest, "X-Forwarded-For is malformed")
	f.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense, 203.0.113.7").Want(t, http.StatusOK)
}

func TestPublicSession_WaitAndAccept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	for _, query := range []string{"wait=", "wait=26", "wait=-1", "wait=1.5", "wait=1s", "wait=+1", "wait=%201", "wait=1&wait=2", "wait=99999999999999999999", "wait=%D9%A1"} {
		f.call(http.MethodGet, public+"/"+id+"?"+query, "", "").
			WantError(t, http.StatusBadRequest, "wait must be an integer from 0 to 25, in seconds")
	}
	f.call(http.MethodGet, public+"/x?wait=x", "", "").WantError(t, http.StatusNotFound, "session not found")
	for _, query := range []string{"?", "?Wait=x", "?waiting=x", "?x=1&wait=0", "?%zz"} {
		f.call(http.MethodGet, public+"/"+id+query, "", "").Want(t, http.StatusOK)
	}
	for _, accept := range []string{"*/*", "text/*", "application/json", "text/event-stream;q=0", "x-text/event-stream-not", ","} {
		got := f.call(http.MethodGet, public+"/"+id, "", "", "Accept", accept).Want(t, http.StatusOK)
		if got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("Accept: %s gets %s", accept, got.Header.Get("Content-Type"))
		}
	}
	for _, accept := range []string{"text/event-stream", "Text/Event-Stream", "application/json;q=0.5, text/event-stream;q=0.9"} {
		if s := f.stream(id, "Accept", accept); s.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("Accept: %s gets %s", accept, s.Header.Get("Content-Type"))
		}
	}
	for _, headers := range [][]string{{"Accept", "text/event-stream"}, {}} {
		if got := f.head(public+"/"+id+"?wait=25", headers...).Want(t, http.StatusOK); got.Header.Get("Session-Expires-In") == "" {
			t.Errorf("HEAD: %v", got.Header)
		}
	}
	if strings.Contains(f.Metrics(), `status="0"`) {
		t.Error("a request is counted without its status")
	}
}

func TestLongPoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")

	got := f.call(http.MethodGet, public+"/"+id+"?wait=0", "", "").Want(t, http.StatusOK)
	if left, err := strconv.Atoi(got.Header.Get("Session-Expires-In")); err != nil || got.Text("status") != "PENDING" || left < 800 || left > 900 {
		t.Errorf("%s, expires in %q", got.Raw, got.Header.Get("Session-Expires-In"))
	}
	if got := f.call(http.MethodGet, public+"/"+id+"?wait=6", "", ""); got.Text("status") != "PENDING" || got.Header.Get("Session-Expires-In") == "" {
		t.Errorf("after the wait: %s, expires in %q", got.Raw, got.Header.Get("Session-Expires-In"))
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			got := f.call(http.MethodGet, public+"/"+id+"?wait=25", "", "")
			if got.Text("status") != "COMPLETED" || got.Header.Get("Session-Expires-In") != "" {
				t.Errorf("%d %s", got.Status, got.Raw)
			}
		})
	}
	eventually(t, "three wait", func() bool { return f.Metric("merchant_operator_streams") == "3" })
	eventually(t, "none of them is in flight", func() bool { return f.Metric("merchant_operator_http_requests_in_flight") == "0" })
	f.Report(id, storetest.Paid("bank-1"))
	waiting.Wait()
	if got := f.call(http.MethodGet, public+"/"+id+"?wait=25", "", ""); got.Text("status") != "COMPLETED" {
		t.Errorf("a wait after the end: %s", got.Raw)
	}
	// A wait is not the time that a request takes, which a busy machine makes longer, but not by seconds.
	const slow = `merchant_operator_http_request_duration_seconds_bucket{method="GET",route="/api/v1/public/sessions/{id}",status="200",le="5"}`
	const all = `merchant_operator_http_request_duration_seconds_count{method="GET",route="/api/v1/public/sessions/{id}",status="200"}`
	if f.Metric(slow) != f.Metric(all) || f.Metric(all) != "6" {
		t.Errorf("%s of %s requests took less than the wait of the second", f.Metric(slow), f.Metric(all))
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	briefly := f.Key("briefly", f.Merchant("brief", func(r *published.MerchantRecord) {
		r.DisplayName, r.Sessions.LifetimeSeconds = "Acme acme", 10 // a busy machine sees it pending
	}))
	for status, end := range map[string]func(id string){
		"COMPLETED": func(id string) { f.Report(id, storetest.Paid("bank-1")) },
		"FAILED":    func(id string) { f.Report(id, storetest.Failed("bank-1")) },
		"CANCELLED": func(id string) {
			f.call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(t, http.StatusOK)
		},
		"EXPIRED": func(string) {},
	} {
		t.Run(status, func(t *testing.T) {
			with := key
			if status == "EXPIRED" {
				with = briefly
			}
			id := f.call(http.MethodPost, sessionPath, with, charge1250).Text("sessionId")
			s := f.stream(id)
			if s.StatusCode != http.StatusOK || s.Header.Get("Content-Type") != "text/event-stream" ||
				s.Header.Get("Cache-Control") != "no-store" || s.Header.Get("X-Accel-Buffering") != "no" || s.Header.Get("Session-Expires-In") == "" {
				t.Errorf("%d %v", s.StatusCode, s.Header)
			}
			s.WantStatus("PENDING")
			if got, _ := s.Next(); got.Kind != "expires-in" || got.Data == "" || got.Data == "0" {
				t.Errorf("after PENDING comes %+v", got)
			}
			end(id)
			s.WantStatus(status)
			s.WantEnd()

			late := f.stream(id)
			late.WantStatus(status)
			late.WantEnd()
			// EventSource comes back after each end; now it does not come a third time.
			if again := f.stream(id, "Last-Event-ID", status); again.StatusCode != http.StatusNoContent {
				t.Errorf("a client that knows the end gets %d", again.StatusCode)
			}
			if again := f.stream(id, "Last-Event-ID", "PENDING"); again.StatusCode != http.StatusOK {
				t.Errorf("a client that does not gets %d", again.StatusCode)
			}
		})
	}
	eventually(t, "no stream is left", func() bool { return f.Metric("merchant_operator_streams") == "0" })
}

// Two merchants may be in one bucket, and get its messages together.
func TestStream_OwnSessionOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	create := func() string { return f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId") }
	mine, theirs := create(), create()
	s, other := f.stream(mine), f.stream(theirs)
	s.WantStatus("PENDING")
	other.WantStatus("PENDING")
	f.Report(theirs, storetest.Paid("bank-1"))
	other.WantStatus("COMPLETED")
	// No message changes a session to which nothing has happened.
	c := storetest.Inspect(t, sharedRedis)
	for _, message := range []string{mine, "ps_", "", strings.Repeat("x", 1<<16), `{"status":"COMPLETED"}`} {
		if n := c.Publish(t.Context(), storetest.BucketTag(parseBucket(t, mine))+"ended", message).Val(); n == 0 {
			t.Error("nobody is subscribed")
		}
	}
	f.Report(mine, storetest.Of(1300, storetest.Paid("bank-2"))) // which the session does not take: only its page says more than the status
	s.WantStatus("PENDING")
	f.call(http.MethodPost, sessionPath+"/"+mine+"/cancel", key, "").Want(t, http.StatusOK)
	s.WantStatus("CANCELLED")
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
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	connection, err := net.Dial("tcp", strings.TrimPrefix(f.served(), "http://"))
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
	f.call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(t, http.StatusOK)
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), `"status":"CANCELLED"`) {
		t.Errorf("%s, %v", rest, err)
	}
}

func TestStream_Heartbeats(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) { o.Streams.Heartbeat = 10 * time.Millisecond })
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	s := f.stream(id)
	s.WantStatus("PENDING")
	for last := "900"; last > "898"; { // as seconds pass
		got, ok := s.Next()
		if !ok || got.Kind != "expires-in" || got.ID != "" || got.Data > last {
			t.Fatalf("%+v, %t, after %s", got, ok, last)
		}
		last = got.Data
	}
}

// The clients of a replaced replica come back together. Their heartbeats must not, or the API is slow each time.
func TestStream_HeartbeatsAreSpread(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) { o.Streams.Heartbeat = 4 * patience })
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	first := make(chan string, 50) // one of them has its first heartbeat within the patience
	for range cap(first) {
		s := f.stream(id)
		s.WantStatus("PENDING")
		s.Next() // expires-in of the status
		go func() { got, _ := s.Next(); first <- got.Kind }()
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

func TestStream_RateLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limited(2))
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	open := 0
	for ; ; open++ { // a machine that is busy for a second opens more than the burst
		s := f.stream(id)
		if s.StatusCode != http.StatusOK {
			f.Received(s.Response).Want(t, http.StatusTooManyRequests)
			break
		}
		s.WantStatus("PENDING")
		if open > 100 {
			t.Fatal("there is no limit")
		}
	}
	if open < 2 {
		t.Errorf("%d streams are open, want the burst", open)
	}
	eventually(t, "refused requests hold no place", func() bool { return f.Metric("merchant_operator_streams") == strconv.Itoa(open) })
}

// A client that does not read must not hold its place. With larger segments the server's kernel would hold megabytes for it.
func TestStream_ClientDoesNotRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) {
		o.Streams.Heartbeat, o.Streams.WriteTimeout = time.Microsecond, time.Second
	})
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, charge1250).Text("sessionId")
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		}), err)
	}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(f.served(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	fmt.Fprintf(connection, "GET %s/%s HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n", public, id)
	eventually(t, "the stream is open", func() bool { return f.Metric("merchant_operator_streams") == "1" })
	eventually(t, "the stream is gone", func() bool { return f.Metric("merchant_operator_streams") == "0" })
}
