package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// request is one of the API. The floors are sent the same bytes, but for the path.
type request struct {
	method, path string
	headers      []string
	body         string
	status       int // of the answer
}

const charge = `{"amountCents": 1250, "orderRef": "table 7, order 4711", "taxCents": 200, "tipCents": 100}`

func createRequest(key string, headers ...string) request {
	return request{
		method: http.MethodPost, path: "/api/v1/sessions", status: http.StatusCreated, body: charge,
		headers: append([]string{"Authorization: Bearer " + key, "Content-Type: application/json"}, headers...),
	}
}

// onceMark is where each request has a number of its own.
const onceMark = "000000000000"

func onceRequest(key string) request {
	return createRequest(key, "Idempotency-Key: till-1-"+onceMark)
}

func replayRequest(key string) request { return createRequest(key, "Idempotency-Key: replayed") }

func getRequest(path string, headers ...string) request {
	return request{method: http.MethodGet, path: path, status: http.StatusOK, headers: headers}
}

func publicRequest(session string) request { return getRequest("/api/v1/public/sessions/" + session) }

func readRequest(key, session string) request {
	return getRequest("/api/v1/sessions/"+session, "Authorization: Bearer "+key)
}

func meRequest(key string) request {
	return getRequest("/api/v1/merchant/me", "Authorization: Bearer "+key)
}

// to is the same request to another path.
func (r request) to(path string) request {
	r.path = path
	return r
}

// bytes is the request on the wire.
func (r request) bytes() []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: bench\r\n", r.method, r.path)
	for _, header := range r.headers {
		fmt.Fprintf(&text, "%s\r\n", header)
	}
	if r.body != "" {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", len(r.body))
	}
	fmt.Fprintf(&text, "\r\n%s", r.body)
	return text.Bytes()
}

// next returns the requests of a connection one after the other, as load.Target asks for them.
func (r request) next(connection, n int, before []byte) []byte {
	if before == nil {
		before = r.bytes()
	}
	if at := bytes.Index(before, []byte("till-1-")); at >= 0 {
		number := fmt.Appendf(nil, "%04d%08d", connection, n)
		copy(before[at+len("till-1-"):], number)
	}
	return before
}

// answer is one of the API.
type answer struct{ body string }

// session is the id of the session that was created.
func (a answer) session() string {
	var created struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal([]byte(a.body), &created) // an empty id is not taken for one
	return created.SessionID
}

// ask makes one request of the product.
func (s *stand) ask(ctx context.Context, wanted request) (answer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.product.address)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		return answer{}, err
	}
	if _, err := conn.Write(wanted.bytes()); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	if response.StatusCode != wanted.status && wanted.status != 0 {
		return answer{}, fmt.Errorf("%s %s: %s: %s", wanted.method, wanted.path, response.Status, strings.TrimSpace(string(body)))
	}
	return answer{string(body)}, nil
}
