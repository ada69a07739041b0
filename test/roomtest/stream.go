package roomtest

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Stream is an open stream of a session's status, or another response to the request for one.
type Stream struct {
	*http.Response

	t     testing.TB
	lines *bufio.Scanner
}

// StreamEvent is one server-sent event.
type StreamEvent struct{ Kind, ID, Data string }

// streamTime bounds a stream: far more than a test watches it on a busy machine.
const streamTime = time.Minute

// connections keeps none: each stream has one of its own.
var connections = &http.Transport{DisableKeepAlives: true}

// OpenStream opens a stream. headers are pairs of name and value.
func OpenStream(t testing.TB, url string, headers ...string) *Stream {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{Transport: connections, Timeout: streamTime}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &Stream{response, t, bufio.NewScanner(response.Body)}
}

// Next returns the next event; false: the stream has ended.
func (s *Stream) Next() (event StreamEvent, ok bool) {
	s.t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			event.Kind = value
		case "id":
			event.ID = value
		case "data":
			event.Data = value
		case "retry":
		case "":
			return event, true
		default:
			s.t.Fatalf("unknown field %q", s.lines.Text())
		}
	}
	return event, false
}

// change returns the next event that is no heartbeat.
func (s *Stream) change() (event StreamEvent, ok bool) {
	s.t.Helper()
	event, ok = s.Next()
	for ok && event.Kind == "expires-in" {
		event, ok = s.Next()
	}
	return event, ok
}

// WantStatus fails the test unless the next change is the status of a session of Acme acme for 12.50.
func (s *Stream) WantStatus(status string) {
	s.t.Helper()
	want := StreamEvent{"status", status, fmt.Sprintf(`{"merchantName":"Acme acme","amountCents":1250,"status":"%s"}`, status)}
	if got, ok := s.change(); !ok || got != want {
		s.t.Fatalf("the stream says %+v, %t; want %s", got, ok, status)
	}
}

// WantEnd fails the test unless nothing changes until the stream ends.
func (s *Stream) WantEnd() {
	s.t.Helper()
	if got, more := s.change(); more || s.lines.Err() != nil {
		s.t.Fatalf("the stream goes on with %+v, %v", got, s.lines.Err())
	}
}
