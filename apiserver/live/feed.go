package live

import (
	"errors"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// MaxFeedWatches is the most of one account at a replica.
const MaxFeedWatches = 4

// feedShare is the part of all watches that those of sessions leave to those of feeds, one in so many: anyone with the id of a session may watch
// it, from any number of addresses, and that must not keep merchants from waiting for their events.
const feedShare = 16

// ErrTooManyOfAccount says that the account has MaxFeedWatches.
var ErrTooManyOfAccount = errors.New("too many watches of this account")

// FeedWatch is one watcher of a feed.
type FeedWatch struct {
	hub     *Hub
	bucket  session.Bucket
	account string
	changed chan struct{} // has room for one
}

// WatchFeed begins to watch the feed of an account. Read the feed after that: what happens between is not lost. Stop ends the watch. The errors
// are ErrTooMany and ErrTooManyOfAccount.
func (h *Hub) WatchFeed(account string) (*FeedWatch, error) {
	merchantID, _ := session.ParseAccount(account)
	bucket := session.MerchantBucket(merchantID)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.open >= h.options.MaxWatches:
		h.metrics.refused.WithLabelValues(limitReplica).Inc()
		return nil, ErrTooMany
	case len(h.buckets[bucket].feeds[account]) >= MaxFeedWatches:
		h.metrics.refused.WithLabelValues(limitAccount).Inc()
		return nil, ErrTooManyOfAccount
	}
	h.open++
	b := h.want(bucket)
	w := &FeedWatch{hub: h, bucket: bucket, account: account, changed: make(chan struct{}, 1)}
	b.feeds[account] = append(b.feeds[account], w)
	return w, nil
}

// Changed receives after something was appended to the feed, and when that may have been missed.
func (w *FeedWatch) Changed() <-chan struct{} { return w.changed }

// Stop ends the watch.
func (w *FeedWatch) Stop() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	b := &h.buckets[w.bucket]
	left := slices.DeleteFunc(b.feeds[w.account], func(other *FeedWatch) bool { return other == w })
	if b.feeds[w.account] = left; len(left) == 0 {
		delete(b.feeds, w.account)
	}
	b.leave(time.Now())
}

func (w *FeedWatch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
