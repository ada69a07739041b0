package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Request is an HTTP request, and the expected status.
type Request struct {
	Method, Path string
	Headers      []string // such as "Content-Type: application/json"
	Body         string
	Status       int
}

// Get is a GET request with the expected status 200.
func Get(path string, headers ...string) Request {
	return Request{Method: http.MethodGet, Path: path, Headers: headers, Status: http.StatusOK}
}

// To is the same request with another path.
func (r Request) To(path string) Request {
	r.Path = path
	return r
}

// Bytes is the request on the wire.
func (r Request) Bytes() []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: bench\r\n", r.Method, r.Path)
	for _, header := range r.Headers {
		fmt.Fprintf(&text, "%s\r\n", header)
	}
	if r.Body != "" {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", len(r.Body))
	}
	fmt.Fprintf(&text, "\r\n%s", r.Body)
	return text.Bytes()
}

// Header is the headers for net/http.
func (r Request) Header() http.Header {
	header := http.Header{}
	for _, line := range r.Headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return header
}

// Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends the request to a server such as http://127.0.0.1:8080. An unexpected status is not an error.
func (r Request) Do(ctx context.Context, client *http.Client, server string) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, server+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return Answer{}, err
	}
	request.Header = r.Header()
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, response.Header, string(body)}, err
}
