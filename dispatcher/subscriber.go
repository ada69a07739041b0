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

// subscriber collects the buckets in which events were recorded since the last leases, as far as messages of Redis say. It
// implements redis.Subscriber. A poll finds the events whose messages were lost.
type subscriber struct {
	changed loop.Signal

	mu         sync.Mutex
	buckets    [session.Buckets]bool
	subscribed [session.Buckets]bool
}

func newSubscriber() *subscriber { return &subscriber{changed: loop.NewSignal()} }

// Received notes that an event of the bucket was recorded.
func (s *subscriber) Received(bucket session.Bucket, _ string) {
	s.mu.Lock()
	s.buckets[bucket] = true
	s.mu.Unlock()
	s.changed.Set()
}

// Subscribed notes that from now on messages of the bucket arrive.
func (s *subscriber) Subscribed(bucket session.Bucket) {
	s.mu.Lock()
	s.subscribed[bucket] = true
	s.mu.Unlock()
}

// Lost notes that messages of the bucket may be lost.
func (s *subscriber) Lost(bucket session.Bucket, _ error) {
	s.mu.Lock()
	s.subscribed[bucket] = false
	s.mu.Unlock()
	s.changed.Set()
}

// takeBuckets returns the buckets and forgets them.
func (s *subscriber) takeBuckets() (buckets []session.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for bucket, recorded := range s.buckets {
		if recorded {
			buckets = append(buckets, session.Bucket(bucket))
		}
	}
	clear(s.buckets[:])
	return buckets
}

// subscribedToAll reports whether messages of all buckets arrive.
func (s *subscriber) subscribedToAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.Contains(s.subscribed[:], false)
}
