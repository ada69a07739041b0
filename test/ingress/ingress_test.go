package ingress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// The allowlist has a till in the shop; everybody else is outside.
const (
	till     = "127.0.0.2"
	outside  = "127.0.0.3"
	tillIPv6 = "::1"
)

// forwarded are headers of clients, and whether the API accepts a key with them.
var forwarded = map[string]struct {
	from    string
	headers []string // of X-Forwarded-For
	allowed bool
}{
	"the till":                              {till, nil, true},
	"the till, forged":                      {till, []string{outside}, true},
	"the till, malformed":                   {till, []string{"somebody, <script>"}, true},
	"outside":                               {outside, nil, false},
	"outside, forged":                       {outside, []string{till}, false},
	"outside, forged twice":                 {outside, []string{till, till}, false},
	"outside, a list":                       {outside, []string{till + ", " + till + ", " + proxyAddress}, false},
	"outside, as the proxy":                 {outside, []string{till + ", " + proxyAddress}, false},
	"outside, empty":                        {outside, []string{""}, false},
	"outside, IPv4 in IPv6":                 {outside, []string{"::ffff:" + till}, false},
	"outside, in IPv6":                      {outside, []string{tillIPv6}, false},
	"the till, in IPv6":                     {tillIPv6, nil, true},
	"the till in IPv6, forged":              {tillIPv6, []string{outside}, true},
	"the till in IPv6, with a port, forged": {tillIPv6, []string{"[2001:db8::7]:443"}, true},
}

// Whatever a client writes into X-Forwarded-For, its own address decides.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	key := shop(t, func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{till, tillIPv6} })
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, name, replicas...)
			for range 2 * len(replicas) { // one after the other, and the other way round
				await(t, "the key works", func() bool { return me(t, "http://"+p.IPv4, key, till) == http.StatusOK })
			}
			for name, test := range forwarded {
				base := "http://" + p.IPv4
				if test.from == tillIPv6 {
					base = "http://" + p.IPv6
				}
				want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[test.allowed]
				for range replicas {
					if got := me(t, base, key, test.from, test.headers...); got != want {
						t.Errorf("%s: %d, want %d", name, got, want)
					}
				}
			}
		})
	}
	// Around the proxy nobody is believed.
	if got := me(t, replicas[0].Public, key, outside, till); got != http.StatusUnauthorized {
		t.Errorf("around the proxy: %d", got)
	}
}

// me is the status of a request with a key, from an address, with these headers X-Forwarded-For.
func me(t *testing.T, base, key, from string, headers ...string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+fixture.Me, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header["X-Forwarded-For"] = headers
	answer, err := client(t, from).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// stream is an open stream of a session's status.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

func open(ctx context.Context, t *testing.T, client *http.Client, base, id string) (stream, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/public/sessions/"+id, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	answer, err := client.Do(request) //nolint:bodyclose // the stream has it, until the end of the test
	if err != nil {
		return stream{}, err
	}
	return stream{answer.Body, bufio.NewReader(answer.Body)}, nil
}

// until reads until a line has the words. The error is why the stream ended before.
func (s stream) until(words string) error {
	for {
		line, err := s.lines.ReadString('\n')
		if strings.Contains(line, words) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A stream lives several times as long as the proxy waits for an answer, and what is written to it arrives at once: the end of the session
// is written when heartbeats have been read. In production a heartbeat comes every 15 s, and the proxy waits 60 s.
func TestStream(t *testing.T) {
	t.Parallel()
	const heartbeat, readTimeout = 500 * time.Millisecond, 5 * time.Second // a busy machine writes a heartbeat in time
	key := shop(t)
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replica, _ := installation.APIServer(t, "lively-"+name, func(o *apiserver.Options) {
				behindProxy(o)
				o.Streams.Heartbeat = heartbeat
			})
			p, id := start(t, newService(t, replica), readTimeout), charge(t, key)
			s, err := open(t.Context(), t, client(t, till), "http://"+p.IPv4, id)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.until("PENDING"); err != nil {
				t.Fatalf("the first event: %v", err)
			}
			for range 3 * readTimeout / heartbeat {
				if err := s.until("event: expires-in"); err != nil {
					t.Fatalf("a heartbeat: %v", err)
				}
			}
			cancel(t, key, id)
			if err := s.until("CANCELLED"); err != nil {
				t.Errorf("the end: %v", err)
			}
			if err := s.until("more"); err != io.EOF { //nolint:errorlint // nothing else is a clean end
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// Payers of one session wait behind one proxy, and all of them hear of its end.
func TestStream_2000(t *testing.T) {
	const many = 2000
	key := shop(t)
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			p, id := startProxy(t, name, replicas...), charge(t, key)
			var opened, ended sync.WaitGroup
			failures := make(chan error, 2*many)
			one := client(t, till)
			one.Timeout = 0 // the first stream waits until all are open, however long that takes here
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			patience := time.AfterFunc(4*fixture.Patience, giveUp)
			atOnce := make(chan struct{}, 100)
			for range many {
				opened.Add(1)
				ended.Go(func() {
					atOnce <- struct{}{}
					s, err := open(ctx, t, one, "http://"+p.IPv4, id)
					if err == nil {
						err = s.until("PENDING")
					}
					<-atOnce
					opened.Done()
					if err == nil {
						err = s.until("CANCELLED")
						_ = s.body.Close()
					}
					if err != nil {
						failures <- err
					}
				})
			}
			opened.Wait()
			patience.Reset(fixture.Patience)
			cancel(t, key, id)
			ended.Wait()
			if n := len(failures); n > 0 {
				t.Errorf("%d of %d streams: %v", n, many, <-failures)
			}
		})
	}
}

// A replica stops while tills charge and payers wait: no charge fails, and streams end as they do at any end, so that pages come back.
func TestDrain(t *testing.T) {
	t.Parallel()
	key := shop(t)
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaving, stop := installation.APIServer(t, "leaving-"+name, func(o *apiserver.Options) {
				behindProxy(o)
				o.DrainDelay = 5 * time.Second // a busy service notices in time
			})
			p, id := startProxy(t, name, leaving, replicas[1]), charge(t, key)
			var streams []stream
			for range 4 {
				s, err := open(t.Context(), t, client(t, till), "http://"+p.IPv4, id)
				if err == nil {
					err = s.until("PENDING")
				}
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			var tills sync.WaitGroup
			var charges, after atomic.Int64
			var stopped, over atomic.Bool
			for range 8 {
				tills.Go(func() {
					one := client(t, till)
					for !over.Load() {
						answer, err := fixture.Call(one, "http://"+p.IPv4, http.MethodPost, fixture.Sessions, key, `{"amountCents":100}`)
						if err != nil || answer.Status != http.StatusCreated {
							t.Errorf("a charge: %d %s, %v", answer.Status, answer.Raw, err)
							return
						}
						charges.Add(1)
						if stopped.Load() {
							after.Add(1)
						}
					}
				})
			}
			await(t, "tills charge", func() bool { return charges.Load() > 100 || t.Failed() })
			stop()
			stopped.Store(true)
			await(t, "tills charge at the other replica", func() bool { return after.Load() > 100 || t.Failed() })
			over.Store(true)
			tills.Wait()

			ended := 0
			cancel(t, key, id)
			for _, s := range streams {
				switch err := s.until("CANCELLED"); {
				case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
					ended++
				case err != nil:
					t.Errorf("a stream ended with %v", err)
				}
			}
			if ended == 0 || ended == len(streams) {
				t.Errorf("%d of %d streams were of the replica that stopped", ended, len(streams))
			}
		})
	}
}

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
