//go:build faults

package faults

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func abuseFaults() []fault {
	const promised = "bounded memory, and a well-behaved client beside it is served"
	all := []fault{}
	for _, a := range []struct {
		name string
		try  abuse
	}{
		{"slowloris: headers a byte at a time", slowHeaders},
		{"bodies a byte at a time, with a good key", slowBodies},
		{"idle connections", idleConnections},
		{"answers that are never read", unreadAnswers},
		{"header bombs of 1 MiB and of 10,000 headers", headerBombs},
		{"bodies without end, announced and chunked", endlessBodies},
		{"connections opened and reset at once", resetFlood},
		{"HTTP/2 in the clear, with rapid resets of streams", resetStreams},
		{"wrong keys in a flood, and a till that repeats a rotated key", wrongKeys},
	} {
		all = append(all, fault{"P10", a.name, promised, func(t *testing.T) (int, string) { t.Helper(); return beside(t, a.try) }})
	}
	return all
}

// connect opens connections, and closes them when the test ends at the latest.
func connect(t *testing.T, host string, n int) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		var err error
		if all[i], err = net.DialTimeout("tcp", host, fixture.Patience); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

// trickle sends a byte on each connection at a time until the server has closed them all.
func trickle(t *testing.T, all []net.Conn, while func()) (took time.Duration) {
	t.Helper()
	start := time.Now()
	var open atomic.Int64
	open.Store(int64(len(all)))
	for _, connection := range all {
		go func() {
			_, _ = io.Copy(io.Discard, connection)
			_ = connection.Close()
			open.Add(-1)
		}()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if open.Load() == 0 {
			return time.Since(start)
		}
		if time.Since(start) > fixture.Patience {
			t.Errorf("%d slow connections are still open after %s", open.Load(), fixture.Patience)
			return fixture.Patience
		}
		for _, connection := range all {
			_, _ = connection.Write([]byte("x")) // it may be closed
		}
		while()
	}
	return 0
}

// statusOn reads the status of the next answer; 0: the connection ended without one.
func statusOn(connection net.Conn) int {
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func slowHeaders(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 500**intensity)
	for _, connection := range all {
		_, _ = io.WriteString(connection, "GET /api/v1/merchant/me HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	}
	took := trickle(t, all, while)
	return len(all), fmt.Sprintf("all closed after %.0f s", took.Seconds())
}

func slowBodies(t *testing.T, host, key string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 300**intensity)
	for _, connection := range all {
		fmt.Fprintf(connection, "POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 16000\r\n\r\n{", key)
	}
	took := trickle(t, all, while)
	return len(all), fmt.Sprintf("all closed after %.0f s", took.Seconds())
}

func idleConnections(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	const many = 15_000 // whatever the intensity: as many as a process may usually open
	all := make([]net.Conn, many)
	for i := range all {
		all[i] = connect(t, host, 1)[0]
		// One cheap request, so that it may idle for long.
		_, _ = io.WriteString(all[i], "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
		if status := statusOn(all[i]); status != http.StatusNotFound {
			t.Fatalf("a connection got %d before it idles", status)
		}
		if i%1000 == 999 {
			while()
		}
	}
	for _, connection := range all {
		_ = connection.Close()
	}
	return many, "all answered once, those that had idled longest closed for others"
}

// unreadAnswers asks for a long document again and again and reads none of it.
func unreadAnswers(t *testing.T, host, _ string, while func()) (int, string) {
	t.Helper()
	all := connect(t, host, 30) // each takes megabytes of the kernel
	requests := strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n", 400)
	for _, connection := range all {
		go func() { _, _ = io.WriteString(connection, requests) }() // blocks when the server reads no more
	}
	for range 10 {
		while()
	}
	for _, connection := range all {
		_ = connection.Close()
	}
	return len(all), "each answered as far as its buffers took"
}

// abuse is what an attacker does to the API at host, with a key that is good; it returns how often it has tried. While
// looks holds what the API then takes.
type abuse func(t *testing.T, host, key string, while func()) (tried int, note string)

// beside lets a well-behaved client charge while somebody abuses the API.
func beside(t *testing.T, try abuse) (tried int, seen string) {
	t.Helper()
	s := deploy(t, 1, 0)
	s.Merchant("coffee")
	key, other := s.apiKey("till", "coffee"), s.apiKey("other", "coffee")
	api := s.replicas[0]
	before := gauges(t, api.ops)
	done := make(chan struct{})
	var calling sync.WaitGroup
	var served atomic.Int64
	var slowest time.Duration
	calling.Go(func() {
		c := newCaller()
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := c.call(api.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
			if err != nil || got.Status != http.StatusCreated {
				t.Errorf("the well-behaved client got %d, %v", got.Status, err)
				return
			}
			served.Add(1)
			slowest = max(slowest, got.Took)
		}
	})
	during := maps.Clone(before)
	tried, note := try(t, strings.TrimPrefix(api.public, "http://"), other, func() {
		now := gauges(t, api.ops)
		during[resident] = max(during[resident], now[resident])
		during[connections] = max(during[connections], now[connections])
	})
	target := served.Load() + 20
	eventually(t, "the well-behaved client is served", func() bool { return served.Load() > target || t.Failed() })
	close(done)
	calling.Wait()
	if during[connections] > maxConnections {
		t.Errorf("%.0f connections at once", during[connections])
	}
	if grown := during[resident] - before[resident] - min(float64(tried), maxConnections)*memoryEach; grown > spareMemory {
		t.Errorf("%.0f MB more for %d tries", (during[resident]-before[resident])/1e6, tried)
	}
	if slowest > bound {
		t.Errorf("the well-behaved client waited %s", slowest)
	}
	eventually(t, "goroutines and connections are as many as before", func() bool {
		now := gauges(t, api.ops)
		return now[goroutines] < before[goroutines]+20 && now[openFiles] < before[openFiles]+20
	})
	return tried, fmt.Sprintf("%s; %d charges beside it, the slowest %d ms; memory %.0f MB, %.0f at most, connections %.0f at most",
		note, served.Load(), slowest.Milliseconds(), before[resident]/1e6, during[resident]/1e6, during[connections])
}

const (
	// maxConnections is how many a replica holds unless it is told otherwise.
	maxConnections = 10_000
	// memoryEach is what an open connection may cost.
	memoryEach = 24 << 10
)
