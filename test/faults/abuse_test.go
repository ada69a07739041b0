//go:build faults

package faults

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func abuseFaults() []fault {
	const promised = "memory is bounded, and another client is served"
	all := []fault{}
	for _, a := range []struct {
		name string
		try  abuse
	}{
		{"slowloris: headers a byte at a time", slowHeaders},
		{"bodies a byte at a time, with a good key", slowBodies},
		{"idle connections", idleConnections},
		{"answers that are never read", unreadAnswers},
		{"a header of 1 MiB, and 10,000 headers", headerBombs},
		{"endless bodies, with Content-Length and chunked", endlessBodies},
		{"connections opened and reset at once", resetFlood},
		{"HTTP/2 in the clear, with rapid resets of streams", resetStreams},
		{"a flood of wrong keys, and a till that repeats a rotated key", wrongKeys},
	} {
		all = append(all, fault{"P10", a.name, promised, func(t *testing.T) (int, string) { t.Helper(); return beside(t, a.try) }})
	}
	return all
}

// connect opens connections, and closes them when the test ends at the latest.
func connect(t *testing.T, host string, n int) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		var err error
		if all[i], err = net.DialTimeout("tcp", host, fixture.Patience); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

// trickle sends a byte on each connection at a time until the server has closed them all.
func trickle(t *testing.T, all []net.Conn, while func()) (took time.Duration) {
	t.Helper()
	start := time.Now()
	var open atomic.Int64
	open.Store(int64(len(all)))
	for _, connection := range all {
		go func() {
			_, _ = io.Copy(io.Discard, connection)
			_ = connection.Close()
			open.Add(-1)
		}()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if open.Load() == 0 {
			return time.Since(start)
		}
		if time.Since(start) > fixture.Patience {
			t.Errorf("%d slow connections are still open after %s", open.Load(), fixture.Patience)
			return fixture.Patience
		}
		for _, connection := range all {
			_, _ = connection.Write([]byte("x")) // it may be closed
		}
		while()
	}
	return 0
}

// statusOn reads the status of the next answer; 0: the connection ended without one.
func statusOn(connection net.Conn) int {
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func slowHeaders(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 500**intensity)
	for _, connection := range all {
		_, _ = io.WriteString(connection, "GET /api/v1/merchant/me HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	}
	took := trickle(t, all, while)
	return len(all), fmt.Sprintf("all closed after %.0f s", took.Seconds())
}

func slowBodies(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 300**intensity)
	for _, connection := range all {
		fmt.Fprintf(connection, "POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 16000\r\n\r\n{", key)
	}
	took := trickle(t, all, while)
	return len(all), fmt.Sprintf("all closed after %.0f s", took.Seconds())
}

func idleConnections(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	const many = 15_000 // whatever the intensity: as many as a process may usually open
	all := make([]net.Conn, many)
	for i := range all {
		all[i] = connect(t, host, 1)[0]
		// One cheap request, so that it may idle for long.
		_, _ = io.WriteString(all[i], "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
		if status := statusOn(all[i]); status != http.StatusNotFound {
			t.Fatalf("a connection got %d before it idles", status)
		}
		if i%1000 == 999 {
			while()
		}
	}
	for _, connection := range all {
		_ = connection.Close()
	}
	return many, "all answered once, those that had idled longest closed for others"
}

// unreadAnswers asks for a long document again and again and reads none of it.
func unreadAnswers(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 30) // each takes megabytes of the kernel
	requests := strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n", 400)
	for _, connection := range all {
		go func() { _, _ = io.WriteString(connection, requests) }() // blocks when the server reads no more
	}
	for range 10 {
		while()
	}
	for _, connection := range all {
		_ = connection.Close()
	}
	return len(all), "each answered as far as its buffers took"
}

// abuse is what an attacker does to the API at host, with a key that is good; it returns how often it has tried. While
// looks holds what the API then takes.
type abuse func(t *testing.T, host, key string, while func()) (tried int, note string)

// beside lets a well-behaved client charge while somebody abuses the API.
func beside(t *testing.T, try abuse) (tried int, seen string) {
	t.Helper()
	s := deploy(t, 1, 0)
	s.Merchant("coffee")
	key, other := s.apiKey("till", "coffee"), s.apiKey("other", "coffee")
	api := s.replicas[0]
	before := gauges(t, api.ops)
	done := make(chan struct{})
	var calling sync.WaitGroup
	var served atomic.Int64
	var slowest time.Duration
	calling.Go(func() {
		c := newCaller()
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := c.call(api.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
			if err != nil || got.Status != http.StatusCreated {
				t.Errorf("the well-behaved client got %d, %v", got.Status, err)
				return
			}
			served.Add(1)
			slowest = max(slowest, got.Took)
		}
	})
	during := maps.Clone(before)
	tried, note := try(t, strings.TrimPrefix(api.public, "http://"), other, func() {
		now := gauges(t, api.ops)
		during[resident] = max(during[resident], now[resident])
		during[connections] = max(during[connections], now[connections])
	})
	target := served.Load() + 20
	eventually(t, "the well-behaved client is served", func() bool { return served.Load() > target || t.Failed() })
	close(done)
	calling.Wait()
	if during[connections] > maxConnections {
		t.Errorf("%.0f connections at once", during[connections])
	}
	if grown := during[resident] - before[resident] - min(float64(tried), maxConnections)*memoryEach; grown > spareMemory {
		t.Errorf("%.0f MB more for %d tries", (during[resident]-before[resident])/1e6, tried)
	}
	if slowest > bound {
		t.Errorf("the well-behaved client waited %s", slowest)
	}
	eventually(t, "there are as many goroutines and connections as before", func() bool {
		now := gauges(t, api.ops)
		return now[goroutines] < before[goroutines]+20 && now[openFiles] < before[openFiles]+20
	})
	return tried, fmt.Sprintf("%s; %d charges beside it, the slowest %d ms; memory %.0f MB, %.0f at most, connections %.0f at most",
		note, served.Load(), slowest.Milliseconds(), before[resident]/1e6, during[resident]/1e6, during[connections])
}

const (
	// maxConnections is how many a replica holds by default.
	maxConnections = 10_000
	// memoryEach is what an open connection may cost.
	memoryEach = 24 << 10
)

func headerBombs(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	tried := 100 * *intensity
	for n := range tried {
		connection := connect(t, host, 1)[0]
		go func() {
			_, _ = io.WriteString(connection, "GET /api/v1/merchant/me HTTP/1.1\r\nHost: x\r\n")
			if n%2 == 0 {
				_, _ = io.WriteString(connection, "X-Bomb: "+strings.Repeat("a", 1<<20))
			}
			_, _ = io.WriteString(connection, strings.Repeat("X-Bomb: a\r\n", 10_000)+"\r\n")
		}()
		if status := statusOn(connection); status != 0 && status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header bomb got %d", status)
		}
		_ = connection.Close()
		while()
	}
	return tried, "all refused with 431"
}

func endlessBodies(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	tried := 24 * *intensity
	var most int64
	for n := range tried {
		connection := connect(t, host, 1)[0]
		framing, piece := "Transfer-Encoding: chunked", "4000\r\n"+strings.Repeat(" ", 0x4000)+"\r\n"
		switch n % 3 {
		case 1:
			framing, piece = "Content-Length: 1099511627776", strings.Repeat(" ", 0x4000)
		case 2: // a chunk of one byte with a long extension
			piece = "1;" + strings.Repeat("x", 3000) + "\r\n \r\n"
		}
		fmt.Fprintf(connection, "POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", key, framing)
		var sent int64
		for range 10_000 {
			written, err := io.WriteString(connection, piece)
			if sent += int64(written); err != nil {
				break
			}
		}
		most = max(most, sent)
		if status := statusOn(connection); status != 0 && status != http.StatusBadRequest {
			t.Errorf("a body without end got %d", status)
		}
		_ = connection.Close()
		if n%10 == 0 {
			while()
		}
	}
	if most > 64<<20 {
		t.Errorf("%d MB of a body were taken", most>>20)
	}
	return tried, fmt.Sprintf("all refused, at most %d KB sent before that", most>>10)
}

// wrongKeys tries keys of all kinds from the address of the well-behaved client. Each gets the same answer, and the
// good key beside them no other than ever.
func wrongKeys(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	c := newCaller()
	rotated, err := c.call("http://"+host, http.MethodPost, rotate, key, "")
	if err != nil || rotated.Status != http.StatusOK {
		t.Fatalf("a rotation got %d, %v", rotated.Status, err)
	}
	shared.secret(rotated.Text("fullKey"))
	named, err := apikey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	const callers = 8
	each := 250 * *intensity
	var others atomic.Int64
	var calling sync.WaitGroup
	for n := range callers {
		calling.Go(func() {
			c := newCaller()
			for i := range each {
				wrong := key // the dead key of a till that does not know better
				switch (n + i) % 4 {
				case 1: // a wrong secret of a key id that lives
					wrong = guess(t, named.ID())
				case 2: // a key id that never lived
					wrong = guess(t, published.ID(types.UID(fmt.Sprint("nobody-", n, "-", i))))
				case 3:
					wrong = fmt.Sprintf("externally-generated-key-%032d-%d", i, n)
				}
				got, err := c.call("http://"+host, http.MethodGet, me, wrong, "")
				if err != nil || got.Status != http.StatusUnauthorized {
					others.Add(1)
					t.Errorf("a wrong key got %d, %v", got.Status, err)
					return
				}
			}
		})
	}
	calling.Wait()
	while()
	return callers * each, fmt.Sprintf("%d got 401, and %d anything else", int64(callers*each)-others.Load(), others.Load())
}

// guess is a well-formed key of a key id.
func guess(t *testing.T, id string) string {
	t.Helper()
	key, err := apikey.New(id)
	if err != nil {
		t.Error(err)
	}
	return key.Reveal()
}

func resetFlood(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	tried := 2000 * *intensity
	for n := range tried {
		connection := connect(t, host, 1)[0].(*net.TCPConn)
		fmt.Fprintf(connection, "GET /api/v1/merchant/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", key)
		_ = connection.SetLinger(0) // a reset
		_ = connection.Close()
		if n%200 == 0 {
			while()
		}
	}
	return tried, "each with a request in progress"
}

// resetStreams opens streams of HTTP/2 and resets them, in the clear. The port does not speak it, so to take the preface for a
// request is the most that may come of it.
func resetStreams(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	tried := 20 * *intensity
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	upgrade := "GET /api/v1/merchant/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key +
		"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
	// An empty HEADERS frame and its RST_STREAM.
	resets := strings.Repeat("\x00\x00\x00\x01\x05\x00\x00\x00\x01"+"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", 10_000)
	for n := range tried {
		connection := connect(t, host, 1)[0]
		begin, want := preface, 0
		if n%2 == 1 {
			begin, want = upgrade, http.StatusOK
		}
		go func() { _, _ = io.WriteString(connection, begin+resets) }() // it may be closed meanwhile
		status := statusOn(connection)
		if status == http.StatusSwitchingProtocols || (want != 0 && status != want) || (want == 0 && status != 0 && status < http.StatusBadRequest) {
			t.Errorf("HTTP/2 in the clear got %d", status)
		}
		_ = connection.Close()
		while()
	}
	return tried, "it is not spoken: half got 4xx or nothing, half one answer of HTTP/1.1, and all were closed"
}

func smugglingFaults() []fault {
	return []fault{
		{"P10", "requests that a proxy may parse differently (smuggling)", "refused, or one answer and the connection closed", trySmuggling},
	}
}

// smuggled is a request that must never be seen as one: the answer to it would be the second one.
const smuggled = "GET /api/v1/public/sessions/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

func trySmuggling(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 0)
	host := strings.TrimPrefix(s.replicas[0].public, "http://")
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)
	shapes := map[string]string{
		"Content-Length and Transfer-Encoding": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + "0\r\n\r\n" + smuggled,
		"Transfer-Encoding, then Content-Length": fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n%s",
			5+len(smuggled), smuggled),
		"two Content-Lengths":             fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled),
		"a list of Content-Lengths":       fmt.Sprintf("Content-Length: 0, %d\r\n\r\n%s", len(smuggled), smuggled),
		"a signed Content-Length":         fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(smuggled), smuggled),
		"a negative Content-Length":       "Content-Length: -1\r\n\r\n" + smuggled,
		"a space before the colon":        "Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + smuggled,
		"a tab before chunked":            "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n" + chunked,
		"another encoding":                "Transfer-Encoding: xchunked\r\n\r\n" + chunked,
		"chunked twice":                   "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"chunked, then identity":          "Transfer-Encoding: chunked, identity\r\n\r\n" + chunked,
		"a folded header":                 "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
		"a bare LF in a chunk":            "Transfer-Encoding: chunked\r\n\r\n0\n\r\n" + smuggled,
		"a chunk size that overflows":     "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + smuggled,
		"a NUL in a header":               "X: a\x00b\r\n\r\n" + smuggled,
		"a CR in a header":                "X: a\rTransfer-Encoding: chunked\r\n\r\n" + smuggled,
		"no Host":                         "",
		"two Hosts":                       "Host: y\r\n\r\n" + smuggled,
		"an Upgrade to h2c with settings": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 3\r\n\r\nabcd",
	}
	for shape, rest := range shapes {
		request := "POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mk_live_none\r\n" + rest
		if rest == "" {
			request = "POST /api/v1/sessions HTTP/1.1\r\n\r\n" + smuggled
		}
		answers := converse(t, host, request)
		if got := strings.Count(answers, "HTTP/1.1 "); got > 1 || strings.Contains(answers, "session not found") {
			t.Errorf("%s: %d answers:\n%s", shape, got, answers)
		}
	}
	return len(shapes), fmt.Sprintf("%d shapes: none answered twice", len(shapes))
}

// converse sends bytes and returns all that comes back, until the connection is closed or nothing more comes.
func converse(t *testing.T, host, text string) string {
	t.Helper()
	connection, err := net.DialTimeout("tcp", host, fixture.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, text); err != nil {
		return ""
	}
	_ = connection.SetReadDeadline(time.Now().Add(time.Second))
	answers, _ := io.ReadAll(connection) // what came is what counts
	return string(answers)
}
