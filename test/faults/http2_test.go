//go:build faults

package faults

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

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
