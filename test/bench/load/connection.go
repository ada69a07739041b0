package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

var contentLength = []byte("Content-Length: ")

// connection is one client.
type connection struct {
	net.Conn

	answers *bufio.Reader
}

func dial(ctx context.Context, address string) (*connection, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReaderSize(conn, 4<<10)}, nil
}

// exchange sends a request and reads the answer to it.
func (c *connection) exchange(request []byte) (status int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	line, err := c.answers.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if len(line) < after {
		return 0, fmt.Errorf("not an answer of HTTP: %q", line)
	}
	if status, err = strconv.Atoi(string(line[before:after])); err != nil {
		return 0, fmt.Errorf("not an answer of HTTP: %q", line)
	}
	length, err := c.headers()
	if err != nil {
		return 0, err
	}
	_, err = c.answers.Discard(length)
	return status, err
}

// headers skips the headers and returns the length of the body.
func (c *connection) headers() (length int, err error) {
	length = -1
	for {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSuffix(line, []byte("\r\n"))
		if len(line) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, contentLength); found {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, fmt.Errorf("a length of %q", value)
			}
		}
	}
	if length < 0 {
		return 0, errors.New("an answer without Content-Length")
	}
	return length, nil
}

// stopAt makes whatever the connection does then fail.
func (c *connection) stopAt(end time.Time) error { return c.SetDeadline(end) }
