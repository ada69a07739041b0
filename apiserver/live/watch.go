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
	tenant  string
	wake    func() // nil until Notify
	changed func() // nil until Notify; may stay so
}

// Watch begins to watch a session for a client address. The tenant is the namespace of the
// session's Merchant, or empty if no such Merchant is known. Read the session after that, and give
// what was read to Seen: what happens between is not lost. Stop ends the watch. The errors are
// ErrTooMany and ErrTooManyFromAddress.
//
// The payers of a tenant have at most as many places as are left, as its feeds have (WatchFeed): one
// tenant leaves the payers of others about half.
func (h *Hub) Watch(tenant string, id session.ID, address string) (*Watch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch left := h.options.MaxWatches - h.options.MaxWatches/feedShare - h.open; {
	case left <= 0:
		h.metrics.refused.WithLabelValues(limitReplica).Inc()
		return nil, ErrTooMany
	case h.sessionsOf[tenant] >= left:
		h.metrics.refused.WithLabelValues(limitTenant).Inc()
		return nil, ErrTooMany
	case h.byAddress[address] >= h.options.MaxWatchesPerAddress:
		h.metrics.refused.WithLabelValues(limitAddress).Inc()
		return nil, ErrTooManyFromAddress
	}
	h.open++
	h.byAddress[address]++
	h.sessionsOf[tenant]++
	b := h.want(id.Bucket())
	w := b.sessions[id]
	if w == nil {
		w = &watched{id: id}
		b.sessions[id] = w
		h.schedule(w, h.nextLook(time.Now()), Reread)
	}
	watch := &Watch{hub: h, session: w, address: address, tenant: tenant}
	w.watches = append(w.watches, watch)
	return watch, nil
}

// leave takes one off what is counted under a name.
func leave(counts map[string]int, name string) {
	counts[name]--
	if counts[name] == 0 {
		delete(counts, name)
	}
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

// Notify has wake called once the session has ended, or is gone, perhaps more than once, and at once if that was before. It has changed called, unless
// that is nil, each time that the pending session was read and has payments that it did not take: one may be new, or have been refunded, and no
// message is needed for that. Neither must block, nor use the Watch. Call Notify once.
func (w *Watch) Notify(wake, changed func()) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.wake, w.changed = wake, changed
	if w.session.over() {
		wake()
	}
}

// Ended is Notify with a channel, which is closed then.
func (w *Watch) Ended() <-chan struct{} {
	ended := make(chan struct{})
	w.Notify(sync.OnceFunc(func() { close(ended) }), nil)
	return ended
}

// Session returns the session as it was read last, which is when it had ended once wake was called. The error is store.ErrNotFound if it is gone.
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
	leave(h.byAddress, w.address)
	leave(h.sessionsOf, w.tenant)
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
