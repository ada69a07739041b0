// Package load is an HTTP load generator: each of a fixed number of connections sends the next request when it has the response, or at a
// constant rate. It supports just enough HTTP/1.1 for that, to use little of the CPU that it shares with the server: vegeta, which the
// open loop uses, takes more than the servers that are measured.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Target is a server, the requests to send, and the expected status.
type Target struct {
	Name    string // for errors
	Address string // host:port
	// Next returns the n-th request of a connection. It may modify and return the previous one, which is nil at first.
	Next func(connection, n int, before []byte) []byte
	// Status is the expected one. One response in twenty may have another status: on a busy machine some time out.
	Status int
}

// Schedule is the number of connections and the length of a measurement.
type Schedule struct {
	Connections      int
	WarmUp, Duration time.Duration // the warm-up is not counted
	// PerSecond is the rate of all connections together; zero: as fast as they are answered. A request that is sent late, because the one
	// before it has no response yet, counts from the time at which it was due.
	PerSecond float64
}

// pause is the time between two requests of a connection.
func (s Schedule) pause() time.Duration {
	if s.PerSecond == 0 {
		return 0
	}
	return time.Duration(float64(s.Connections) / s.PerSecond * float64(time.Second))
}

// Result is a measurement.
type Result struct {
	Requests, Answered int // Answered includes the warm-up
	Elapsed            time.Duration
	P50, P99           time.Duration
}

// PerSecond is the rate of requests.
func (r Result) PerSecond() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// grace is the time for the last responses.
const grace = 5 * time.Second

// Run measures the target. It fails if there is no response, or if too many have an unexpected status.
func Run(ctx context.Context, target Target, schedule Schedule) (Result, error) {
	clients := make([]*client, 0, schedule.Connections)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for i := range schedule.Connections {
		c, err := connect(ctx, target, i)
		if err != nil {
			return Result{}, err
		}
		clients = append(clients, c)
	}
	begin := time.Now().Add(schedule.WarmUp)
	end := begin.Add(schedule.Duration)
	var asking sync.WaitGroup
	for _, c := range clients {
		asking.Go(func() { c.ask(begin, end, schedule.pause()) })
	}
	asking.Wait()
	if err := errors.Join(ctx.Err(), failures(clients)); err != nil {
		return Result{}, fmt.Errorf("%s at %d connections: %w", target.Name, schedule.Connections, err)
	}
	return sum(clients, schedule.Duration), nil
}

// Times sends n requests on one connection.
func Times(ctx context.Context, target Target, n int) error {
	c, err := connect(ctx, target, 0)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(grace)); err != nil {
		return err
	}
	var request []byte
	for i := range n {
		request = target.Next(0, i, request)
		status, err := c.exchange(request)
		if err != nil {
			return err
		}
		if status != target.Status {
			return fmt.Errorf("%s: status %d, want %d", target.Name, status, target.Status)
		}
	}
	return nil
}

// client is a connection and its measurements.
type client struct {
	net.Conn

	answers    *bufio.Reader
	number     int
	target     Target
	answered   int
	unexpected int
	status     int // the last unexpected one
	took       []time.Duration
	err        error
}

func connect(ctx context.Context, target Target, number int) (*client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to the target: %w", err)
	}
	return &client{Conn: conn, answers: bufio.NewReaderSize(conn, 4<<10), number: number, target: target}, nil
}

// ask sends requests until the end, and counts the responses between begin and end.
func (c *client) ask(begin, end time.Time, pause time.Duration) {
	if c.err = c.SetDeadline(end.Add(grace)); c.err != nil {
		return
	}
	var request []byte
	due := time.Now().Add(rand.N(pause + 1)) // the connections not all at once
	for n := 0; ; n++ {
		asked := time.Now()
		if pause > 0 {
			if asked = due; time.Until(due) > 0 {
				<-time.After(time.Until(due))
				asked = time.Now() // it may be later
			}
			due = due.Add(pause)
		}
		if !asked.Before(end) {
			return
		}
		request = c.target.Next(c.number, n, request)
		status, err := c.exchange(request)
		if err != nil {
			c.err = fmt.Errorf("request %d of connection %d: %w", n, c.number, err)
			return
		}
		if status != c.target.Status {
			c.unexpected++
			c.status = status
		}
		c.answered++
		answered := time.Now()
		if answered.After(begin) && answered.Before(end) {
			c.took = append(c.took, answered.Sub(asked))
		}
	}
}

var contentLength = []byte("Content-Length: ")

// exchange sends a request and reads the response, which must have a Content-Length.
func (c *client) exchange(request []byte) (status int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	line, err := c.answers.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if status, err = strconv.Atoi(string(line[min(before, len(line)):min(after, len(line))])); err != nil {
		return 0, fmt.Errorf("not an HTTP status line: %q", line)
	}
	length := -1
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
				return 0, fmt.Errorf("Content-Length: %w", err)
			}
		}
	}
	if length < 0 {
		return 0, errors.New("the response has no Content-Length")
	}
	_, err = c.answers.Discard(length)
	return status, err
}

func sum(clients []*client, elapsed time.Duration) (r Result) {
	var took []time.Duration
	for _, c := range clients {
		took = append(took, c.took...)
		r.Answered += c.answered
	}
	r.Requests, r.Elapsed = len(took), elapsed
	slices.Sort(took)
	if len(took) > 0 {
		r.P50, r.P99 = took[len(took)*50/100], took[len(took)*99/100]
	}
	return r
}

// failures returns the first few errors, because most are the same.
func failures(clients []*client) error {
	const few, tolerable = 3, 20
	var errs []error
	var answered, unexpected, status int
	for _, c := range clients {
		answered, unexpected, status = answered+c.answered, unexpected+c.unexpected, max(status, c.status)
		if c.err != nil && len(errs) < few {
			errs = append(errs, c.err)
		}
	}
	if unexpected*tolerable > answered {
		errs = append(errs, fmt.Errorf("%d of %d responses had an unexpected status, such as %d", unexpected, answered, status))
	}
	return errors.Join(errs...)
}
