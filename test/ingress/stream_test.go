package ingress

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
)

// stream is an open stream of a session's status.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

func open(t *testing.T, client *http.Client, base, id string) (stream, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/public/sessions/"+id, http.NoBody)
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
	const heartbeat, readTimeout = 250 * time.Millisecond, 2 * time.Second
	key := shop(t)
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replica, _ := installation.APIServer(t, "lively-"+name, func(o *apiserver.Options) {
				behindProxy(o)
				o.Streams.Heartbeat = heartbeat
			})
			p, id := start(t, newService(t, replica), readTimeout), charge(t, key)
			s, err := open(t, client(t, till), "http://"+p.IPv4, id)
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
			atOnce := make(chan struct{}, 100)
			for range many {
				opened.Add(1)
				ended.Go(func() {
					atOnce <- struct{}{}
					s, err := open(t, one, "http://"+p.IPv4, id)
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
			cancel(t, key, id)
			ended.Wait()
			if n := len(failures); n > 0 {
				t.Errorf("%d of %d streams: %v", n, many, <-failures)
			}
		})
	}
}
