package payer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// StreamOptions configure streams and long polls.
type StreamOptions struct {
	// Max is the maximum of concurrent ones, and MaxPerAddress that of one client address. They are not among MaxConnections. A stream
	// takes about 3 KiB, a long poll 30 KiB. Default 10,000 and 100.
	Max, MaxPerAddress int
	// Reread is the most time until a stream shows a change of which no message came. Default a minute.
	Reread time.Duration
	// Heartbeat is the time between the events of a stream on which nothing happens. Default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is the most time that a client may take to make room for the next event. Default 10 s.
	WriteTimeout time.Duration
	// Drain is the time over which a draining replica ends its streams, at random. Default 10 s.
	Drain time.Duration
}

// streams are the open streams. Each has left net/http, and has no goroutine, timer or buffer while nothing happens on it: of tens of
// thousands, stacks would be most of the memory and of the garbage collector's work. One goroutine looks at them in turn. What is to be
// written is written by a goroutine that ends with it, as a client may not read.
type streams struct {
	options StreamOptions
	drained <-chan struct{} // closed when this replica drains
	stop    func()          // ends the goroutine

	mu       sync.Mutex
	open     []*stream
	next     int // index of the stream to look at next
	draining bool
	closed   bool
	running  sync.WaitGroup
}

func newStreams(options StreamOptions, drained <-chan struct{}) *streams {
	stopped := make(chan struct{})
	s := &streams{options: options, drained: drained, stop: sync.OnceFunc(func() { close(stopped) })}
	go s.run(stopped)
	return s
}

// longestLap is the longest time until a stream is closed that its client has left.
const longestLap = 2 * time.Second

// run looks at each stream once a lap, several times between two heartbeats.
func (s *streams) run(stopped <-chan struct{}) {
	const laps, steps = 8, 64
	lap := min(max(s.options.Heartbeat/laps, 1), longestLap)
	ticker := time.NewTicker(max(lap/steps, time.Millisecond))
	defer ticker.Stop()
	drained, last := s.drained, time.Now()
	for {
		select {
		case <-stopped:
			return
		case <-drained:
			drained = nil
			s.drain()
		case now := <-ticker.C:
			s.look(now, float64(now.Sub(last))/float64(lap))
			last = now
		}
	}
}

// look looks at a share of the streams: those that nobody has looked at for longest.
func (s *streams) look(now time.Time, share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := len(s.open)
	for range min(all, int(math.Ceil(share*float64(all)))) {
		each := s.open[s.next%all]
		s.next = (s.next + 1) % all
		switch {
		case !each.end.IsZero() && !now.Before(each.end), clientGone(each.socket):
			go each.close()
		case !now.Before(each.heartbeat):
			each.heartbeat = now.Add(s.options.Heartbeat)
			go each.beat()
		}
	}
}

// drain has all streams end, each at a random time.
func (s *streams) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, each := range s.open {
		each.end = time.Now().Add(jitter.UpTo(s.options.Drain))
	}
}

// finish waits for the streams, which end by themselves in a drain, and ends the others with ctx. No request may be in progress.
func (s *streams) finish(ctx context.Context) {
	ended := context.AfterFunc(ctx, s.close)
	defer ended()
	s.running.Wait()
	s.stop()
}

// close ends all streams.
func (s *streams) close() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, each := range s.open {
		go each.close()
	}
}

// add adds an open stream, which may come after a drain has begun.
func (s *streams) add(opened *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened.index = len(s.open)
	s.open = append(s.open, opened)
	if s.draining {
		opened.end = time.Now().Add(jitter.UpTo(s.options.Drain))
	}
	if s.closed {
		go opened.close()
	}
}

// remove removes a stream, and reports whether it was there.
func (s *streams) remove(ended *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended.index < 0 {
		return false
	}
	last := s.open[len(s.open)-1]
	s.open[ended.index], last.index = last, ended.index
	s.open[len(s.open)-1] = nil
	s.open, ended.index = s.open[:len(s.open)-1], -1
	return true
}

// stream is an open stream of a pending session.
type stream struct {
	streams *streams
	conn    net.Conn
	socket  syscall.RawConn
	watch   *live.Watch
	expires time.Time // the session does
	writing sync.Mutex

	// Of the streams' mutex:
	index     int       // among the open ones; negative: closed
	heartbeat time.Time // the next one
	end       time.Time // in a drain; zero: none
}

// serve takes over the connection of a request and sends the state, then what changes, until the session has ended. It takes over the
// watch too.
func (s *streams) serve(w http.ResponseWriter, watch *live.Watch, sess *store.PublicSession, expires time.Time) error {
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	header := w.Header()
	header.Set("Connection", "close") // the end of the connection is that of the stream
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	_ = header.Write(&head) // cannot fail
	head.WriteString("\r\n")
	s.running.Add(1) // before the server forgets the connection, so that finish waits for it
	conn, socket, err := takeOver(w)
	if err != nil {
		s.running.Done()
		watch.Stop()
		return fmt.Errorf("take over a connection: %w", err)
	}
	opened := &stream{
		streams: s, conn: conn, socket: socket, watch: watch, expires: expires,
		heartbeat: time.Now().Add(jitter.UpTo(s.options.Heartbeat)), // not all of a reconnect at once
	}
	opened.begin(head.Bytes(), sess)
	return nil
}

// sendBuffer is in bytes, more than all events of a stream: without it the kernel keeps megabytes for a client that does not read.
const sendBuffer = 8 << 10

// maxUnacknowledged is how long data may stay unacknowledged before the kernel ends the connection. By default it goes on sending to
// a client that has vanished for a quarter of an hour.
const maxUnacknowledged = 30 * time.Second

// takeOver returns the connection of a request, and the socket below it.
func takeOver(w http.ResponseWriter) (net.Conn, syscall.RawConn, error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	tcp, ok := conn.(interface { // the port of payers has no TLS
		syscall.Conn
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("%T is no TCP connection", conn), conn.Close())
	}
	socket, err := tcp.SyscallConn()
	if err == nil {
		err = tcp.SetWriteBuffer(sendBuffer)
	}
	if err == nil {
		err = limitUnacknowledged(socket)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, socket, nil
}

// begin sends the first events.
func (s *stream) begin(head []byte, sess *store.PublicSession) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.streams.add(s)
	parts := [][]byte{head, retryEvent(), statusEvent(sess)}
	if sess.Status == session.Pending {
		parts = append(parts, s.expiresInEvent())
	}
	if s.send(parts...) != nil || sess.Status.Final() {
		s.close()
		return
	}
	s.watch.Notify(func() { go s.finish() }, func() { go s.repeat(statusEvent(sess)) })
}

// beat sends a heartbeat, unless something else is being sent.
func (s *stream) beat() {
	if !s.writing.TryLock() {
		return
	}
	defer s.writing.Unlock()
	if s.send(s.expiresInEvent()) != nil {
		s.close()
	}
}

// repeat sends the state that the stream has sent once more: something was recorded of the session, of which only its page says more.
func (s *stream) repeat(status []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.send(status) != nil {
		s.close()
	}
}

// finish sends the end of the session.
func (s *stream) finish() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if sess, err := s.watch.Session(); err == nil {
		_ = s.send(statusEvent(&sess))
	}
	s.close()
}

// close ends the stream.
func (s *stream) close() {
	if !s.streams.remove(s) {
		return
	}
	_ = s.conn.Close()
	s.watch.Stop()
	s.streams.running.Done()
}

// send writes at once. An error means that the client has gone, or does not read.
func (s *stream) send(parts ...[]byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.streams.options.WriteTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(bytes.Join(parts, nil))
	return err
}

// retryEvent says when to come back after the stream was cut, so that not all clients of a replica do at once.
func retryEvent() []byte {
	const least, spread = 2 * time.Second, 4 * time.Second
	return fmt.Appendf(nil, "retry: %d\n", (least + jitter.UpTo(spread)).Milliseconds())
}

func statusEvent(sess *store.PublicSession) []byte {
	data, _ := json.Marshal(publicView(sess)) //nolint:errchkjson // texts and a number can always be written
	return fmt.Appendf(nil, "event: status\nid: %s\ndata: %s\n\n", sess.Status, data)
}

func (s *stream) expiresInEvent() []byte {
	return fmt.Appendf(nil, "event: expires-in\ndata: %s\n\n", secondsUntil(s.expires))
}
