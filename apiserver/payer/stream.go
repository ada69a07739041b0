package payer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// StreamOptions configure streams and long polls.
type StreamOptions struct {
	// Max is the maximum of concurrent ones, and MaxPerAddress that of one client address. They are not among MaxConnections. One takes
	// about 12 KiB, a long poll 30 KiB. Default 10,000 and 100.
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

// streams are the open streams. Each has left net/http, whose buffers and stacks take three times the memory of the rest, and with it the
// connections that the server counts and closes. Each has one goroutine, as every stack is work for the garbage collector.
type streams struct {
	options StreamOptions
	drained <-chan struct{} // closed when this replica drains
	stop    func()          // ends the wait for that

	mu       sync.Mutex
	open     map[*stream]struct{}
	draining bool
	closed   bool
	running  sync.WaitGroup
}

func newStreams(options StreamOptions, drained <-chan struct{}) *streams {
	stopped := make(chan struct{})
	s := &streams{
		options: options, drained: drained, stop: sync.OnceFunc(func() { close(stopped) }), open: map[*stream]struct{}{},
	}
	go func() {
		select {
		case <-drained:
			s.drain()
		case <-stopped:
		}
	}()
	return s
}

// drain has all streams end, each at a random time.
func (s *streams) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for each := range s.open {
		each.endBy(time.Now().Add(jitter.UpTo(s.options.Drain)))
	}
}

// finish waits for the streams, which end by themselves in a drain, and ends the others with ctx. No request may be in progress.
func (s *streams) finish(ctx context.Context) {
	ended := context.AfterFunc(ctx, s.close)
	defer ended()
	s.running.Wait()
}

// close ends all streams.
func (s *streams) close() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for each := range s.open {
		_ = each.Close()
	}
}

// add counts an open stream, which may come after a drain has begun.
func (s *streams) add(opened *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[opened] = struct{}{}
	if s.draining {
		opened.endBy(time.Now().Add(jitter.UpTo(s.options.Drain)))
	}
	if s.closed {
		_ = opened.Close()
	}
}

func (s *streams) remove(ended *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, ended)
}

// stream is an open stream. Its goroutine waits in Read, which returns when the client has gone, or at a deadline: that of the next heartbeat,
// of a drain, or the past, when the session has ended.
type stream struct {
	net.Conn

	streams *streams
	watch   *live.Watch
	sess    store.PublicSession
	expires time.Time

	mu    sync.Mutex // of what others set, and of the deadline
	ended bool       // the session has
	end   time.Time  // of the stream, in a drain; zero: none
	read  [1]byte
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
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.running.Done()
		watch.Stop()
		return fmt.Errorf("take over a connection: %w", err)
	}
	opened := &stream{Conn: conn, streams: s, watch: watch, sess: *sess, expires: expires}
	s.add(opened)
	go opened.run(head.Bytes())
	return nil
}

func (s *stream) run(head []byte) {
	defer s.streams.running.Done()
	defer s.watch.Stop()
	defer s.streams.remove(s)
	defer func() { _ = s.Close() }()
	if s.send(head, retryEvent(), statusEvent(&s.sess), s.expiresInEvent()) != nil || s.sess.Status.Final() {
		return
	}
	s.watch.Notify(s.wake)
	heartbeat := time.Now().Add(jitter.UpTo(s.streams.options.Heartbeat)) // not all of a reconnect at once
	for s.awaitUntil(heartbeat) {
		ended, end := s.state()
		switch now := time.Now(); {
		case ended:
			if sess, err := s.watch.Session(); err == nil {
				_ = s.send(statusEvent(&sess))
			}
			return
		case !end.IsZero() && !now.Before(end):
			return
		case !now.Before(heartbeat):
			if s.send(s.expiresInEvent()) != nil {
				return
			}
			heartbeat = time.Now().Add(s.streams.options.Heartbeat)
		}
	}
}

// awaitUntil waits until a time, or until wake or endBy is called; false: the client has gone, or sends something, or the stream is closed.
func (s *stream) awaitUntil(deadline time.Time) bool {
	s.mu.Lock()
	if !s.end.IsZero() && s.end.Before(deadline) {
		deadline = s.end
	}
	if s.ended {
		deadline = past
	}
	err := s.SetReadDeadline(deadline)
	s.mu.Unlock()
	if err == nil {
		_, err = s.Read(s.read[:])
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// past is a deadline that ends a Read at once.
var past = time.Unix(1, 0)

func (s *stream) state() (ended bool, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.end
}

// wake has the stream send the end of its session.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	_ = s.SetReadDeadline(past) // an error comes with the Read
}

// endBy has the stream end at a time.
func (s *stream) endBy(end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
	_ = s.SetReadDeadline(past) // the next one is the earlier of this time and the heartbeat
}

// send writes at once. An error means that the client has gone, or does not read.
func (s *stream) send(parts ...[]byte) error {
	if err := s.SetWriteDeadline(time.Now().Add(s.streams.options.WriteTimeout)); err != nil {
		return err
	}
	_, err := s.Write(bytes.Join(parts, nil))
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

// expiresInEvent is nil for a session that has ended.
func (s *stream) expiresInEvent() []byte {
	if s.sess.Status != session.Pending {
		return nil
	}
	return fmt.Appendf(nil, "event: expires-in\ndata: %s\n\n", secondsUntil(s.expires))
}
