// Package live notifies watchers of a session of its end, and watchers of a feed of new entries. Redis publishes each entry of a
// feed, but a message may be lost: so a session is also read again after a lost subscription, when it expires, and every minute; who waits for
// a feed reads it again after a lost subscription, and at the end of the wait. A lost message delays, and never makes a wrong state.
package live

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure a Hub. All but Interval are required.
type Options struct {
	// Read reads what a payer may see of a session.
	Read func(context.Context, session.ID) (store.PublicSession, error)
	// Interval is the most between two reads of a watched session. Default a minute.
	Interval time.Duration
	// MaxWatches is the most of this replica, of which one in 16 is for feeds only. MaxWatchesPerAddress is the most of one client address.
	MaxWatches, MaxWatchesPerAddress int
	Log                              *slog.Logger
	Registerer                       prometheus.Registerer
}

const (
	defaultInterval = time.Minute
	// readers bounds the reads at a time, so that those after an outage do not crowd out the requests.
	readers = 8
	// retryTime is between the reads of a session while Redis is unavailable.
	retryTime = 2 * time.Second
	// expiryMargin makes sure that a read at expiresAt is not early.
	expiryMargin = 100 * time.Millisecond
	// lingerTime is how long a bucket without watchers stays subscribed: long polls come again and again.
	lingerTime = 15 * time.Second
)

// Hub watches sessions for many watchers. Run does its work.
type Hub struct {
	options      Options
	client       *redis.Client
	metrics      *metrics
	subscription *redis.Subscription
	wake         chan struct{} // has room for one: what is due has changed
	due          chan *watched // to the readers

	mu        sync.Mutex
	buckets   [session.Buckets]bucketState
	open      int            // of sessions and of feeds
	feeds     int            // of feeds alone
	byAddress map[string]int // of sessions
	// sessionsOf and feedsOf are by tenant, which is a namespace.
	sessionsOf, feedsOf map[string]int
	lost                bool // some subscription is lost, and that is logged
}

// bucketState is what is watched of one bucket.
type bucketState struct {
	sessions map[session.ID]*watched
	queue    queue                   // of the sessions
	feeds    map[string][]*FeedWatch // by account
	// failing: its Redis server did not answer a read. Until heldUntil no session of it is read, and then one, to try.
	failing   bool
	heldUntil time.Time
	// wanted: the subscription has this bucket. active: Redis has confirmed that, and it is not lost since.
	wanted, active bool
	emptySince     time.Time // zero: something of it is watched
}

// leave takes down when nothing of the bucket is watched any more.
func (b *bucketState) leave(now time.Time) {
	if len(b.sessions) == 0 && len(b.feeds) == 0 {
		b.emptySince = now
	}
}

// watched is a session with at least one watch.
type watched struct {
	id      session.ID
	watches []*Watch
	known   store.PublicSession // as it was read last
	gone    bool                // there is no such session any more
	place                       // in the queue

	reading bool // a reader has it; it is in no queue
	again   bool // a message came while it was read
}

// over: the state will not change any more.
func (w *watched) over() bool { return w.gone || w.known.Status.Final() }

// New returns a Hub on the subscriptions of a Redis.
func New(client *redis.Client, options Options) *Hub {
	if options.Interval == 0 {
		options.Interval = defaultInterval
	}
	h := &Hub{
		options: options, client: client, wake: make(chan struct{}, 1), due: make(chan *watched),
		byAddress: map[string]int{}, sessionsOf: map[string]int{}, feedsOf: map[string]int{},
	}
	h.metrics = newMetrics(options.Registerer, h)
	h.subscription = client.Subscribe(store.EventsChannel, subscriber{h})
	return h
}

// Run reads sessions when they are due, until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	defer h.subscription.Close()
	var running sync.WaitGroup
	defer running.Wait()
	for range readers {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case w := <-h.due:
					h.read(ctx, w)
				}
			}
		})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w, wait := h.next(ctx, time.Now())
		if w != nil {
			select {
			case <-ctx.Done():
				return
			case h.due <- w:
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-timer.C:
		}
	}
}

// next takes the next session to read, or returns how long there is none. It unsubscribes from buckets that nobody watches any more.
func (h *Hub) next(ctx context.Context, now time.Time) (*watched, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, wait := h.first(now)
	if wait <= 0 {
		b := &h.buckets[first.id.Bucket()]
		if b.failing {
			h.hold(ctx, first.id.Bucket(), now)
		}
		b.queue.remove(first)
		first.reading = true
		return first, 0
	}
	for i := range h.buckets {
		if b := &h.buckets[i]; b.wanted && !b.emptySince.IsZero() && now.Sub(b.emptySince) >= lingerTime {
			h.subscription.Remove(session.Bucket(i))
			b.wanted, b.active, b.sessions, b.feeds = false, false, nil, nil
		}
	}
	return nil, wait
}

// first returns the session to read first, and the time until then.
func (h *Hub) first(now time.Time) (first *watched, wait time.Duration) {
	wait = lingerTime
	var at time.Time
	for i := range h.buckets {
		b := &h.buckets[i]
		one := b.queue.first()
		if one == nil {
			continue
		}
		if until := b.heldUntil.Sub(now); until > 0 {
			wait = min(wait, max(until, one.at.Sub(now)))
		} else if first == nil || one.at.Before(at) {
			first, at = one, one.at
		}
	}
	if first != nil {
		wait = min(wait, at.Sub(now))
	}
	return first, wait
}

// hold keeps the sessions of a bucket's Redis server from being read for a while, so that the readers are free for the sessions of other servers.
func (h *Hub) hold(ctx context.Context, bucket session.Bucket, now time.Time) {
	until := now.Add(jitter.Add(retryTime, jitter.Fraction()))
	h.ofServer(ctx, bucket, func(b *bucketState) { b.failing, b.heldUntil = true, until })
}

// release ends a hold: the server answers.
func (h *Hub) release(ctx context.Context, bucket session.Bucket) {
	if h.buckets[bucket].failing {
		h.ofServer(ctx, bucket, func(b *bucketState) { b.failing, b.heldUntil = false, time.Time{} })
		h.wakeUp()
	}
}

// ofServer calls do with all buckets of the server of a bucket.
func (h *Hub) ofServer(ctx context.Context, bucket session.Bucket, do func(*bucketState)) {
	for _, group := range h.client.ByServer(ctx, session.AllBuckets()) {
		if !slices.Contains(group, bucket) {
			continue
		}
		for _, one := range group {
			do(&h.buckets[one])
		}
	}
}

// read reads a session and notifies its watchers if it has ended.
func (h *Hub) read(ctx context.Context, w *watched) {
	sess, err := h.options.Read(ctx, w.id)
	h.mu.Lock()
	defer h.mu.Unlock()
	w.reading = false
	now, reason := time.Now(), w.reason
	if redis.ServesNobody(err) && ctx.Err() == nil {
		h.hold(ctx, w.id.Bucket(), now)
	} else {
		h.release(ctx, w.id.Bucket())
	}
	switch {
	case len(w.watches) == 0:
	case errors.Is(err, store.ErrNotFound):
		w.gone = true
		w.notify()
	case errors.Is(err, redis.ErrUnavailable) && !redis.ServesNobody(err): // the other sessions of the server can be read
		h.schedule(w, now.Add(jitter.Add(retryTime, jitter.Fraction())), reason)
	case errors.Is(err, redis.ErrUnavailable):
		h.schedule(w, now, reason)
	case err != nil:
		h.schedule(w, h.nextLook(now), Reread)
	default:
		h.learn(w, sess, now)
		if w.over() {
			h.metrics.changes.WithLabelValues(string(reason)).Inc()
			w.notify()
		} else if sess.Refused { // another one since, or its refund, of which the message may be lost
			w.notifyChanged()
		}
	}
}

// learn takes what was read and decides when to read again.
func (h *Hub) learn(w *watched, sess store.PublicSession, now time.Time) {
	w.known = sess
	again := w.again
	w.again = false
	switch expires, look := now.Add(sess.ExpiresIn+expiryMargin), h.nextLook(now); {
	case w.over():
		h.buckets[w.id.Bucket()].queue.remove(w)
	case again:
		h.schedule(w, time.Time{}, Message)
	case expires.Before(look):
		h.schedule(w, expires, Expiry)
	default:
		h.schedule(w, look, Reread)
	}
}

// nextLook is when to look at a session although nothing is known to happen.
func (h *Hub) nextLook(now time.Time) time.Time {
	return now.Add(h.options.Interval - jitter.UpTo(h.options.Interval/5)) // not all of a reconnect at once
}

// schedule has a session read at a time; zero: before all others.
func (h *Hub) schedule(w *watched, at time.Time, reason Reason) {
	w.reason = reason
	queue := &h.buckets[w.id.Bucket()].queue
	queue.put(w, at)
	if queue.first() == w {
		h.wakeUp()
	}
}

func (h *Hub) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (w *watched) notify() {
	for _, watch := range w.watches {
		watch.notify()
	}
}

func (w *watched) notifyChanged() {
	for _, watch := range w.watches {
		if watch.changed != nil {
			watch.changed()
		}
	}
}

// subscriber is the Hub as the subscription sees it.
type subscriber struct{ *Hub }

// Subscribed reads all sessions of the bucket: what happened to them before may not have been received.
func (h subscriber) Subscribed(of session.Bucket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release(context.Background(), of)
	b := &h.buckets[of]
	b.active = b.wanted
	now := time.Now()
	for _, watches := range b.feeds {
		for _, w := range watches {
			w.notify()
		}
	}
	for _, w := range b.sessions {
		switch {
		case w.reading:
			w.again = true
		case !w.over():
			h.schedule(w, now, Reread)
		}
	}
	if h.lost && !slices.ContainsFunc(h.buckets[:], func(b bucketState) bool { return b.wanted && !b.active }) {
		h.lost = false
		h.options.Log.Info("subscribed again to the ends of sessions")
	}
}

// Received reads the session that has ended, and notifies who waits for the feed of the account.
func (h subscriber) Received(of session.Bucket, message string) {
	sessionID, account, _ := strings.Cut(message, " ")
	id, err := session.ParseID(sessionID)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release(context.Background(), of) // its server is there
	for _, w := range h.buckets[of].feeds[account] {
		w.notify()
	}
	if err != nil {
		return // about no session
	}
	switch w := h.buckets[of].sessions[id]; {
	case w == nil || w.over():
	case w.reading:
		w.again = true
	default:
		h.schedule(w, time.Time{}, Message)
	}
}

// Lost only counts: the watched sessions are read when there is a subscription again, and else in their turn.
func (h subscriber) Lost(of session.Bucket, err error) {
	h.metrics.lost.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buckets[of].active = false
	if !h.lost {
		h.lost = true
		h.options.Log.Warn("lost the subscription to the ends of sessions; payers see them late until it is back", "error", err)
	}
}
