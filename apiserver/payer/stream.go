package payer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
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
// connections that the server counts and closes.
type streams struct {
	options StreamOptions
	drained <-chan struct{} // closed when this replica drains

	stop    chan struct{} // closed to end all at once
	once    sync.Once
	running sync.WaitGroup
}

func newStreams(options StreamOptions, drained <-chan struct{}) *streams {
	return &streams{options: options, drained: drained, stop: make(chan struct{})}
}

// finish waits for the streams, which end by themselves in a drain, and ends the others with ctx. No request may be in progress.
func (s *streams) finish(ctx context.Context) {
	ended := context.AfterFunc(ctx, s.close)
	defer ended()
	s.running.Wait()
}

// close ends all streams.
func (s *streams) close() { s.once.Do(func() { close(s.stop) }) }

// stream is an open stream.
type stream struct {
	net.Conn

	streams *streams
	watch   *live.Watch
	sess    store.PublicSession
	expires time.Time
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
	opened := &stream{conn, s, watch, *sess, expires}
	go opened.run(head.Bytes())
	return nil
}

func (s *stream) run(head []byte) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.Read(make([]byte, 1)) // a client has nothing more to say, but that it has gone
	}()
	defer s.streams.running.Done()
	defer s.watch.Stop()
	defer func() {
		_ = s.Close()
		<-gone
	}()
	if s.send(head, retryEvent(), statusEvent(&s.sess), s.expiresInEvent()) != nil || s.sess.Status.Final() {
		return
	}
	heartbeat := time.NewTimer(jitter.UpTo(s.streams.options.Heartbeat)) // not all of a reconnect at once
	defer heartbeat.Stop()
	draining := s.streams.drained
	var drained <-chan time.Time
	for {
		select {
		case <-s.watch.Ended():
			if ended, err := s.watch.Session(); err == nil {
				_ = s.send(statusEvent(&ended))
			}
			return
		case <-heartbeat.C:
			if s.send(s.expiresInEvent()) != nil {
				return
			}
			heartbeat.Reset(s.streams.options.Heartbeat)
		case <-draining:
			draining, drained = nil, time.After(jitter.UpTo(s.streams.options.Drain))
		case <-drained:
			return
		case <-gone:
			return
		case <-s.streams.stop:
			return
		}
	}
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
