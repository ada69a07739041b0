package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// gatherTime is how long to wait for more events after the first: leases and attempts that start together share their round trips.
const gatherTime = 10 * time.Millisecond

// recorded are the buckets in which events were recorded since the last leases, as far as messages of Redis say. It is a
// redis.Subscriber. What it does not learn of, a poll finds.
type recorded struct {
	changed loop.Signal

	mu         sync.Mutex
	buckets    [session.Buckets]bool
	subscribed [session.Buckets]bool
}

func newRecorded() *recorded { return &recorded{changed: loop.NewSignal()} }

// Received notes that an event of the bucket was recorded.
func (r *recorded) Received(bucket session.Bucket, _ string) {
	r.mu.Lock()
	r.buckets[bucket] = true
	r.mu.Unlock()
	r.changed.Set()
}

// Subscribed notes that from now on messages of the bucket arrive.
func (r *recorded) Subscribed(bucket session.Bucket) {
	r.mu.Lock()
	r.subscribed[bucket] = true
	r.mu.Unlock()
}

// Lost notes that messages of the bucket may be lost.
func (r *recorded) Lost(bucket session.Bucket, _ error) {
	r.mu.Lock()
	r.subscribed[bucket] = false
	r.mu.Unlock()
	r.changed.Set()
}

// take returns the buckets and forgets them.
func (r *recorded) take() (buckets []session.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for bucket, recorded := range r.buckets {
		if recorded {
			buckets = append(buckets, session.Bucket(bucket))
		}
	}
	clear(r.buckets[:])
	return buckets
}

// all reports whether messages of all buckets arrive.
func (r *recorded) all() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.Contains(r.subscribed[:], false)
}
