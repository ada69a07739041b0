//go:build faults

package faults

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func smugglingFaults() []fault {
	return []fault{
		{"P10", "requests that proxies may frame otherwise", "refused, or one answer and the connection closed", trySmuggling},
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
