package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

const payersCommand = "payers"

// heartbeat is the time between the events of a stream, 15 s, and some delay.
const heartbeat = 17 * time.Second

// PayersCommand holds the streams of many payers, in a process of its own because each process has a limit of open files. It reads
// orders, and prints a payersReport ten times a second.
func PayersCommand() *cobra.Command { return fixture.Helper(payersCommand, servePayers) }

// order changes what the payers of a process do.
type order struct {
	Address  string   `json:"address"`  // of the replica that they connect to from now on
	AtOnce   bool     `json:"atOnce"`   // after a cut all connect at the next full second, instead of after `retry:`
	Sessions []string `json:"sessions"` // of further payers
}

type payersReport struct {
	Open   int                  `json:"open"`   // streams that have shown their status
	Alive  int                  `json:"alive"`  // of them, with an event within the time of a heartbeat
	Last   time.Time            `json:"last"`   // when the last one opened
	Failed map[string]int       `json:"failed"` // attempts that opened no stream, by reason
	Ended  map[string]time.Time `json:"ended"`  // when sessions were shown to have ended
}

// crowd is the payers of this process.
type crowd struct {
	mu     sync.Mutex
	order  order
	heard  map[string]time.Time // the last event of each open stream, by session
	report payersReport
}

func servePayers(ctx context.Context, in io.Reader, out io.Writer) {
	c := &crowd{heard: map[string]time.Time{}, report: payersReport{Failed: map[string]int{}, Ended: map[string]time.Time{}}}
	go func() {
		orders := json.NewDecoder(in)
		for {
			var next order
			if orders.Decode(&next) != nil {
				return
			}
			c.mu.Lock()
			c.order = next
			c.mu.Unlock()
			const opening = 16
			slots := make(chan struct{}, opening)
			for _, session := range next.Sessions {
				slots <- struct{}{}
				go c.pay(ctx, session, sync.OnceFunc(func() { <-slots }))
			}
		}
	}()
	fmt.Fprintln(out, "ready")
	reports := json.NewEncoder(out)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		<-ticker.C
		fixture.Check(reports.Encode(c.now()))
	}
}

func (c *crowd) now() payersReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Open, c.report.Alive = len(c.heard), 0
	for _, last := range c.heard {
		if time.Since(last) < heartbeat {
			c.report.Alive++
		}
	}
	report := c.report
	report.Failed, report.Ended = maps.Clone(c.report.Failed), c.report.Ended
	c.report.Ended = map[string]time.Time{}
	return report
}

// pay is one payer: it opens streams until one shows the end.
func (c *crowd) pay(ctx context.Context, session string, opened func()) {
	retry := time.Second
	for ctx.Err() == nil {
		c.mu.Lock()
		now := c.order
		c.mu.Unlock()
		shown := false
		err := c.read(ctx, now.Address, session, &retry, func() { shown = true; opened() })
		c.mu.Lock()
		delete(c.heard, session)
		if !shown {
			c.report.Failed[dialError(err)]++
		}
		atOnce := c.order.AtOnce
		c.mu.Unlock()
		if err == nil {
			return
		}
		pause := retry
		if atOnce {
			pause = time.Until(time.Now().Truncate(time.Second).Add(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// read reads a stream until it shows the end of the session. An error means that it was cut or not opened.
func (c *crowd) read(ctx context.Context, address, session string, retry *time.Duration, opened func()) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: payerAddress(session)}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	closed := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer closed()
	request := fixture.PublicSession(session)
	request.Headers = append(request.Headers, "Accept: text/event-stream")
	if _, err := conn.Write(request.Bytes()); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(conn, 512)
	for first := true; ; first = false {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); {
		case first && !strings.HasPrefix(line, "HTTP/1.1 200 "):
			return errors.New(name) // the status line
		case name == "retry":
			milliseconds, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			*retry = time.Duration(milliseconds) * time.Millisecond
		case name == "event":
			c.hear(session)
		case name == "id":
			c.show(session, value != "PENDING")
			opened()
			if value != "PENDING" {
				return nil
			}
		}
	}
}

func (c *crowd) hear(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[session] = time.Now()
}

func (c *crowd) show(session string, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Last = time.Now()
	if ended {
		c.report.Ended[session] = c.report.Last
	}
}

// payerAddress gives nearly each payer an address of its own. From one address, Linux finds half of its 28,000 ports at once, and searches
// all of these before it tries the others: beyond 14,000 connections to one server each new one takes milliseconds of CPU.
func payerAddress(session string) net.IP {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(session)) // cannot fail
	address := hash.Sum([]byte{})
	address[0] = 127
	return address
}

func dialError(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	return fmt.Sprint(err)
}

// payers are such a process.
type payers struct {
	*fixture.Process

	input  io.Closer
	orders *json.Encoder
	mu     sync.Mutex
	report payersReport // Ended has all of them
}

func startPayers(ctx context.Context, f *fixture.Fixture) *payers {
	in, out := io.Pipe()
	p := &payers{input: out, orders: json.NewEncoder(out), report: payersReport{Ended: map[string]time.Time{}}}
	p.Process, _ = f.StartSelf(ctx, in, payersCommand)
	f.OnStop(out.Close)
	go func() {
		reports := json.NewDecoder(p.Out)
		for {
			var next payersReport
			if reports.Decode(&next) != nil {
				return // the process has ended
			}
			p.mu.Lock()
			maps.Copy(p.report.Ended, next.Ended)
			next.Ended = p.report.Ended
			p.report = next
			p.mu.Unlock()
		}
	}()
	return p
}

// Stop ends the process and its streams.
func (p *payers) Stop() {
	_ = p.input.Close() // else the process is waited for in vain
	p.Process.Stop()
}

func (p *payers) send(next order) { fixture.Check(p.orders.Encode(next)) }

// now is the last report.
func (p *payers) now() payersReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := p.report
	report.Ended = maps.Clone(report.Ended)
	return report
}

// sumReports adds up reports of processes.
func sumReports(all []*payers) payersReport {
	sum := payersReport{Failed: map[string]int{}, Ended: map[string]time.Time{}}
	for _, p := range all {
		report := p.now()
		sum.Open, sum.Alive = sum.Open+report.Open, sum.Alive+report.Alive
		if report.Last.After(sum.Last) {
			sum.Last = report.Last
		}
		for reason, failed := range report.Failed {
			sum.Failed[reason] += failed
		}
		maps.Copy(sum.Ended, report.Ended)
	}
	return sum
}
