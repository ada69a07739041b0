package live

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// The budgets are used up.
var (
	ErrTooMany            = errors.New("too many watches of this replica")
	ErrTooManyFromAddress = errors.New("too many watches of this client address")
)

// Watch is one watcher of a session.
type Watch struct {
	hub     *Hub
	session *watched
	address string
	wake    func() // nil until Notify
}

// Watch begins to watch a session for a client address. Read the session after that, and give what was read to Seen: what happens between
// is not lost. Stop ends the watch. The errors are ErrTooMany and ErrTooManyFromAddress.
func (h *Hub) Watch(id session.ID, address string) (*Watch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.open >= h.options.MaxWatches-h.options.MaxWatches/feedShare:
		h.metrics.refused.WithLabelValues(limitReplica).Inc()
		return nil, ErrTooMany
	case h.byAddress[address] >= h.options.MaxWatchesPerAddress:
		h.metrics.refused.WithLabelValues(limitAddress).Inc()
		return nil, ErrTooManyFromAddress
	}
	h.open++
	h.byAddress[address]++
	b := h.want(id.Bucket())
	w := b.sessions[id]
	if w == nil {
		w = &watched{id: id}
		b.sessions[id] = w
		h.schedule(w, h.nextLook(time.Now()), Reread)
	}
	watch := &Watch{hub: h, session: w, address: address}
	w.watches = append(w.watches, watch)
	return watch, nil
}

// want returns a bucket that is to be subscribed to.
func (h *Hub) want(bucket session.Bucket) *bucketState {
	b := &h.buckets[bucket]
	if b.sessions == nil {
		b.sessions, b.feeds = map[session.ID]*watched{}, map[string][]*FeedWatch{}
	}
	b.emptySince = time.Time{}
	if !b.wanted {
		b.wanted = true
		h.subscription.Add(bucket)
	}
	return b
}

// Seen takes what the watcher has read.
func (w *Watch) Seen(sess store.PublicSession) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	now := time.Now()
	switch {
	case w.session.over() || w.session.reading: // what a reader learns is newer
	case sess.Status.Final():
		w.hub.learn(w.session, sess, now)
		w.session.notify()
	case w.session.reason != Message && w.session.at.After(now): // a read that is due may be of a change since
		w.hub.learn(w.session, sess, now)
	}
}

// Notify has wake called once the session has ended, or is gone, perhaps more than once, and at once if that was before. It must not block, and
// not use the Watch. Call Notify once.
func (w *Watch) Notify(wake func()) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.wake = wake
	if w.session.over() {
		wake()
	}
}

// Ended is Notify with a channel, which is closed then.
func (w *Watch) Ended() <-chan struct{} {
	ended := make(chan struct{})
	w.Notify(sync.OnceFunc(func() { close(ended) }))
	return ended
}

// Session returns the session as it was read when it had ended. The error is store.ErrNotFound if it is gone.
func (w *Watch) Session() (store.PublicSession, error) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.session.gone {
		return store.PublicSession{}, store.ErrNotFound
	}
	return w.session.known, nil
}

// Stop ends the watch.
func (w *Watch) Stop() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.byAddress[w.address]--
	if h.byAddress[w.address] == 0 {
		delete(h.byAddress, w.address)
	}
	watched := w.session
	watched.watches = slices.DeleteFunc(watched.watches, func(other *Watch) bool { return other == w })
	if len(watched.watches) > 0 {
		return
	}
	b := &h.buckets[watched.id.Bucket()]
	b.queue.remove(watched)
	delete(b.sessions, watched.id)
	b.leave(time.Now())
}

func (w *Watch) notify() {
	if w.wake != nil {
		w.wake()
	}
}
