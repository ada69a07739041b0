package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
)

// LongPoll has requests wait until something happens.
type LongPoll struct {
	// Draining is closed when this replica drains. It then ends all waits within Drain, at random.
	Draining <-chan struct{}
	Drain    time.Duration
	// WriteTimeout is the most time that a client may take to read a response after a wait.
	WriteTimeout time.Duration
}

// Wait is the wait of one request.
type Wait struct {
	poll    LongPoll // its Draining is nil once that was seen
	event   *Event
	request *http.Request
	control *http.ResponseController
	end     time.Time
	timer   *time.Timer
	count   func()
}

// Start begins a wait. Until Stop ends it, the request is not among those that are counted against the maximum.
func (l LongPoll) Start(e *Event, w http.ResponseWriter, r *http.Request, atMost time.Duration) (*Wait, error) {
	control, end := http.NewResponseController(w), time.Now().Add(atMost)
	// At the server's own one the request would be cancelled. Without one, a body that never comes would hold the connection for ever.
	if err := control.SetReadDeadline(end.Add(l.WriteTimeout)); err != nil {
		return nil, fmt.Errorf("hold a request: %w", err)
	}
	return &Wait{l, e, r, control, end, time.NewTimer(atMost), httpserver.Uncount(r.Context())}, nil
}

// Stop ends the wait.
func (w *Wait) Stop() {
	w.timer.Stop()
	w.count()
}

// For waits for something to happen, and returns false when the wait or this replica ends before. The error is that of a client that is
// gone. After true it may be called again.
func (w *Wait) For(happened <-chan struct{}) (did bool, err error) {
	w.event.Hold(func() {
		for {
			select {
			case <-w.poll.Draining:
				w.poll.Draining = nil
				w.timer.Reset(min(time.Until(w.end), jitter.UpTo(w.poll.Drain)))
				continue
			case <-happened:
				did = true
			case <-w.request.Context().Done():
				err = w.request.Context().Err()
			case <-w.timer.C:
			}
			return
		}
	})
	_ = w.control.SetWriteDeadline(time.Now().Add(w.poll.WriteTimeout)) // an error comes with the write
	return did, err
}
