package web

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Event is what is known of one request. The handlers fill it as they learn it; the Server counts and logs it once, at the end.
type Event struct {
	// TestMode: with a test key, or about a test session. Such requests are in no figure of live ones.
	TestMode bool

	// KeyID is of the presented API key, also of a refused one, and MerchantID of its merchant; empty: unknown. ClientAddress
	// is who presented it.
	KeyID         string
	MerchantID    string
	ClientAddress netip.Addr
	// KeyCharged: the request counts as one with a wrong key of KeyID until Redis has accepted it.
	KeyCharged bool
	// Blocked is about a good key from an address that its merchant's allowlist does not have.
	Blocked BlockedAddress

	// Err is what the handler returned; nil: it has responded.
	Err error

	server   *Server
	recorder recorder
	body     timedBody
	limit    string        // over which the request was; empty: none
	overload bool          // its response was Answer.Overload
	held     time.Duration // see Hold
}

// BlockedAddress is a block of addresses that an allowlist does not have.
type BlockedAddress struct {
	MerchantID string // empty: the request was not blocked
	Block      string
	ReportOnly bool // by the allowlist's mode; else the request was refused
}

// Status is that of the response; 0: none yet.
func (e *Event) Status() int { return e.recorder.status }

// RequestID is the X-Request-Id of the response.
func (e *Event) RequestID() string { return e.recorder.Header().Get(requestIDHeader) }

// Hold runs a wait for something that is not up to this service. It is not part of the request's duration, in the histogram and in the
// log, and the request is not in flight: else streams would hide how fast all others are.
func (e *Event) Hold(wait func()) {
	start := time.Now()
	e.server.metrics.inFlight.Dec()
	defer func() {
		e.server.metrics.inFlight.Inc()
		e.held += time.Since(start)
	}()
	wait()
}

// recorder is the ResponseWriter of a request. It records the status; 0: not written yet.
type recorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader records the status.
func (s *recorder) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write records the implied status.
func (s *recorder) Write(body []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(body)
}

// Hijack records the status of the response that the hijacker writes.
func (s *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.status = http.StatusOK
	}
	return conn, buffered, err
}

// Unwrap is for http.ResponseController.
func (s *recorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
