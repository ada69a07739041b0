package live

import (
	"errors"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// MaxFeedWatches is the most of one account at a replica.
const MaxFeedWatches = 4

// maxFeedsOf is the part of all watches that feeds may take, one in so many: payers have the others.
const maxFeedsOf = 2

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
	tenant  string
	changed chan struct{} // has room for one
}

// WatchFeed begins to watch the feed of an account, whose tenant is the namespace of its Merchant. Read the feed after that: what happens between
// is not lost. Stop ends the watch. The errors are ErrTooMany and ErrTooManyOfAccount.
//
// A tenant may take as many places as are left when it has them: one alone has half of all feeds' places, two a third each. So there is always
// room for another one, however many merchants a tenant makes.
func (h *Hub) WatchFeed(tenant, account string) (*FeedWatch, error) {
	merchantID, _ := session.ParseAccount(account)
	bucket := session.MerchantBucket(merchantID)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch left := min(h.options.MaxWatches-h.open, (h.options.MaxWatches+1)/maxFeedsOf-h.feeds); {
	case left <= 0:
		h.metrics.refused.WithLabelValues(limitReplica).Inc()
		return nil, ErrTooMany
	case h.feedsOf[tenant] >= left:
		h.metrics.refused.WithLabelValues(limitTenant).Inc()
		return nil, ErrTooMany
	case len(h.buckets[bucket].feeds[account]) >= MaxFeedWatches:
		h.metrics.refused.WithLabelValues(limitAccount).Inc()
		return nil, ErrTooManyOfAccount
	}
	h.open++
	h.feeds++
	h.feedsOf[tenant]++
	b := h.want(bucket)
	w := &FeedWatch{hub: h, bucket: bucket, account: account, tenant: tenant, changed: make(chan struct{}, 1)}
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
	h.feeds--
	leave(h.feedsOf, w.tenant)
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
