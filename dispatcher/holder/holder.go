// Package holder has the names under which a dispatcher leases events, and their heartbeats: a lease is worth what the heartbeat of its holder is.
package holder

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	heartbeatInterval = 750 * time.Millisecond
	// trustTime is how long after a heartbeat a dispatcher sends what it has leased. Others free its leases when they have seen no other
	// heartbeat of it for removalTime, which is longer: so a dispatcher that was frozen sends nothing that they have taken over.
	trustTime, removalTime = 2500 * time.Millisecond, 3 * time.Second
	// confirmPause is the time until an attempt that waits for a heartbeat looks again.
	confirmPause = 50 * time.Millisecond
)

// identityLength is how much of the end of its identity the name of a holder has: that of a pod's name and the process id. Each lease
// writes the name twice.
const identityLength = 7

// errNoHeartbeat says that nothing may be leased or sent now.
var errNoHeartbeat = errors.New("no heartbeat was recorded for too long")

// Set is the holders of this dispatcher by the bucket that has their heartbeats: one for all buckets, or in a Redis Cluster one for each.
type Set map[session.Bucket]*Holder

// New returns holders whose names begin with the end of the identity.
func New(events *outbox.Outbox, identity string, log *loop.Log, now func() time.Time) Set {
	all := Set{}
	for _, bucket := range events.HolderBuckets() {
		all[bucket] = &Holder{
			outbox: events, bucket: bucket, identity: identity[max(0, len(identity)-identityLength):], log: log, now: now,
			Removed: loop.NewSignal(), orphaned: map[string]bool{},
		}
	}
	return all
}

// In returns the holder of the leases in a bucket.
func (s Set) In(bucket session.Bucket) *Holder {
	if len(s) == 1 {
		return s[0]
	}
	return s[bucket]
}

// Buckets returns those in which a holder has its leases.
func (s Set) Buckets(one *Holder) (buckets []session.Bucket) {
	for bucket := range session.Bucket(session.Buckets) {
		if s.In(bucket) == one {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// Drain leaves what others hold to those that still lease.
func (s Set) Drain() {
	for _, one := range s {
		one.beating.Lock()
		one.draining = true
		one.beating.Unlock()
	}
}

// Run makes heartbeats until ctx ends.
func (s Set) Run(ctx context.Context, log *loop.Log) {
	var loops []loop.Loop
	for _, one := range s {
		loops = append(loops, loop.Loop{Interval: heartbeatInterval, Step: one.heartbeat})
	}
	loop.Run(ctx, log, loops...)
}

// Holder makes heartbeats, and watches those of other dispatchers. It compares no clocks: only for how long a heartbeat stays the last one while
// this dispatcher reaches Redis.
type Holder struct {
	// Removed is set when other holders were removed, whose leases are to be freed.
	Removed loop.Signal

	outbox   *outbox.Outbox
	bucket   session.Bucket
	identity string
	log      *loop.Log
	now      func() time.Time

	beating  sync.Mutex // one heartbeat at a time
	failedAt time.Time  // when the last one failed; guarded by beating
	draining bool       // nothing is leased any more, so no other holder is removed; guarded by beating

	mu       sync.Mutex
	name     string    // empty: the first heartbeat is still to be made
	at       time.Time // when the last recorded heartbeat was sent
	others   map[string]sighting
	orphaned map[string]bool // the removed ones
}

// sighting is when a heartbeat of a holder was first seen.
type sighting struct {
	heartbeats string
	at         time.Time
}

// current returns the name of the holder. ok: leases under it may be used now.
func (h *Holder) current() (name string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name, h.name != "" && h.now().Sub(h.at) < trustTime
}

// Valid reports whether leases under the name may be used now.
func (h *Holder) Valid(name string) bool {
	current, ok := h.current()
	return ok && current == name
}

// Confirm returns the name to lease under. If the last heartbeat was too long ago, it makes another one.
func (h *Holder) Confirm(ctx context.Context) (name string, err error) {
	if name, ok := h.current(); ok {
		return name, nil
	}
	h.beating.Lock()
	defer h.beating.Unlock()
	if name, ok := h.current(); ok {
		return name, nil
	}
	if h.now().Sub(h.failedAt) < heartbeatInterval {
		return "", errNoHeartbeat
	}
	if _, err := h.beat(ctx); err != nil {
		return "", err
	}
	name, _ = h.current()
	return name, nil
}

// Await waits until leases under the name may be used. It reports false if they never may, or not in time.
func (h *Holder) Await(ctx context.Context, name string, until time.Time) bool {
	for {
		switch current, ok := h.current(); {
		case current != name, h.now().After(until):
			return false
		case ok:
			return true
		case !loop.Pause(ctx, confirmPause):
			return false
		}
	}
}

// heartbeat makes a heartbeat, and removes holders that made none for too long.
func (h *Holder) heartbeat(ctx context.Context) (more bool, err error) {
	h.beating.Lock()
	defer h.beating.Unlock()
	silent, err := h.beat(ctx)
	if err != nil || h.draining {
		return false, err
	}
	for name, heartbeats := range silent {
		removed, err := h.outbox.RemoveHolder(ctx, h.bucket, name, heartbeats)
		if err != nil {
			return false, err
		}
		if removed {
			h.mu.Lock()
			h.orphaned[name] = true
			h.mu.Unlock()
			h.Removed.Set()
		}
	}
	return false, nil
}

// beat makes a heartbeat, and returns the holders that made none for too long. A holder that was removed itself gets another name.
func (h *Holder) beat(ctx context.Context) (silent map[string]string, err error) {
	name, _ := h.current()
	isNew := name == ""
	if isNew {
		name = h.identity + "-" + strings.ToLower(rand.Text()[:8])
	}
	sent := h.now()
	heartbeats, err := h.outbox.Heartbeat(ctx, h.bucket, name, isNew)
	switch {
	case errors.Is(err, outbox.ErrHolderRemoved):
		h.log.Warn("this dispatcher made no heartbeat for too long, or Redis lost it: others take over its events")
		h.mu.Lock()
		h.name = ""
		h.mu.Unlock()
		return h.beat(ctx)
	case err != nil:
		h.failedAt = h.now()
		return nil, err
	}
	delete(heartbeats, name)
	h.mu.Lock()
	defer h.mu.Unlock()
	continuous := sent.Sub(h.at) < trustTime
	h.name, h.at = name, sent
	return h.observe(heartbeats, continuous, h.now()), nil
}

// observe notes the heartbeats of other holders, and returns those that made none for too long. If it is not continuous, this dispatcher may have
// been frozen, or Redis silent for all: then they have as long again.
func (h *Holder) observe(heartbeats map[string]string, continuous bool, now time.Time) (silent map[string]string) {
	silent, seen := map[string]string{}, make(map[string]sighting, len(heartbeats))
	for name, count := range heartbeats {
		last, known := h.others[name]
		if !continuous || !known || last.heartbeats != count {
			last = sighting{count, now}
		}
		if now.Sub(last.at) >= removalTime {
			silent[name] = count
		}
		seen[name] = last
	}
	h.others = seen
	return silent
}

// Orphans returns the removed holders whose leases are to be freed.
func (h *Holder) Orphans() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.orphaned))
}

// Forget ends a removed holder whose leases were freed.
func (h *Holder) Forget(ctx context.Context, orphan string) error {
	if err := h.outbox.ForgetHolder(ctx, h.bucket, orphan); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.orphaned, orphan)
	return nil
}
