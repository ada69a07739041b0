//go:build faults

package faults

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
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
		_ = connection.SetLinger(0) // a reset, not a farewell
		_ = connection.Close()
		if n%200 == 0 {
			while()
		}
	}
	return tried, "each with a request under way"
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
