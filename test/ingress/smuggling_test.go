package ingress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// smuggled is a request that the proxy must not send on as the beginning of another client's.
const smuggled = "GET /api/v1/public/sessions/smuggled HTTP/1.1\r\nHost: x\r\nX: "

// shapes are what proxies and servers have framed differently. Each is the rest of a POST.
func shapes() map[string]string {
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)
	return map[string]string{
		"CL.TE":                        fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(smuggled), smuggled),
		"TE.CL":                        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked,
		"TE.TE":                        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths":                  fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled),
		"a list of lengths":            fmt.Sprintf("Content-Length: 0, %d\r\n\r\n%s", len(smuggled), smuggled),
		"a signed length":              fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(smuggled), smuggled),
		"a folded encoding":            "Content-Length: 5\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a folded value":               "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"a space before the colon":     "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"a vertical tab":               "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"an unknown encoding":          "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"a bare LF in a chunk":         "Transfer-Encoding: chunked\r\n\r\n0\n\n" + smuggled,
		"a chunk of the wrong length":  "Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n" + smuggled,
		"a chunk size that overflows":  "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + smuggled,
		"a chunk size with a sign":     "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + smuggled,
		"a chunk extension with an LF": "Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n" + chunked,
		"a CR in a header":             "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"a NUL in a header":            "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + smuggled,
	}
}

// After each shape other clients of the proxy, one on each connection to a replica, get their own answers.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	key := shop(t)
	charge(t, key)
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, name, replicas...)
			victim := client(t, till)
			for shape, rest := range shapes() {
				send(t, p.IPv4, "POST "+fixture.Sessions+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mk_live_none\r\nContent-Type: application/json\r\n"+rest)
				for range 4 {
					answer, err := fixture.Call(victim, "http://"+p.IPv4, http.MethodGet, fixture.Me, key, "")
					if err != nil || answer.Status != http.StatusOK || answer.Body["merchant"] == nil {
						t.Errorf("%s: another client gets %d %s, %v", shape, answer.Status, answer.Raw, err)
					}
				}
			}
		})
	}
}

// send writes bytes and reads until the answer to them begins, or the connection ends.
func send(t *testing.T, address, text string) {
	t.Helper()
	connection, err := net.DialTimeout("tcp", address, fixture.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.Copy(connection, strings.NewReader(text)); err != nil {
		return // it was refused before its end
	}
	_ = connection.SetReadDeadline(time.Now().Add(time.Second)) // a proxy may wait for more
	_, _ = connection.Read(make([]byte, 1))                     // what comes does not matter
}
