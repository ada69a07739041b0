package httpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
)

// ErrorBody is the shape of every error.
type ErrorBody struct {
	Error string `json:"error"`
}

// shapedConn gives the shape of all errors to the answers net/http writes by itself, as plain text, to
// what it cannot parse: control characters in a header, too large a header, an unknown transfer
// encoding. There is no hook for them but the connection.
type shapedConn struct{ *net.TCPConn }

// What net/http writes, in one piece (func (c *conn) serve). No handler's answer begins like this, for
// our answers have other headers before Content-Type.
var (
	statusStart  = []byte("HTTP/1.1 ")
	plainHeaders = []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
)

// Write writes an answer, in the shape of all errors.
func (c shapedConn) Write(answer []byte) (int, error) {
	line, rest, _ := bytes.Cut(answer, []byte("\r\n"))
	if !bytes.HasPrefix(line, statusStart) || !bytes.HasPrefix(rest, plainHeaders) {
		return c.TCPConn.Write(answer)
	}
	if _, err := c.TCPConn.Write(shaped(line)); err != nil {
		return 0, err
	}
	return len(answer), nil
}

// shaped keeps the status line, such as "HTTP/1.1 400 Bad Request: invalid header value", and tells
// its reason in the body. net/http never quotes the request in it.
func shaped(line []byte) []byte {
	_, reason, _ := bytes.Cut(line[len(statusStart):], []byte(" "))
	body, _ := json.Marshal(ErrorBody{string(reason)}) //nolint:errchkjson // a string can always be written
	return fmt.Appendf(nil, "%s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\r\n%s", line, len(body), body)
}
