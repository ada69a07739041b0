package dispatcher

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

// holders are the names under which this dispatcher leases events, by the bucket that has the heartbeats: one for all buckets, or in a
// Redis Cluster one for each.
type holders map[session.Bucket]*holder

func newHolders(events *outbox.Outbox, identity string, log *loop.Log) holders {
	all := holders{}
	for _, bucket := range events.HolderBuckets() {
		all[bucket] = &holder{outbox: events, bucket: bucket, identity: identity[max(0, len(identity)-identityLength):], log: log, removed: loop.NewSignal(), orphaned: map[string]bool{}}
	}
	return all
}

// in returns the holder of the leases in a bucket.
func (h holders) in(bucket session.Bucket) *holder {
	if len(h) == 1 {
		return h[0]
	}
	return h[bucket]
}

// buckets returns those in which a holder has its leases.
func (h holders) buckets(one *holder) (buckets []session.Bucket) {
	for bucket := range session.Bucket(session.Buckets) {
		if h.in(bucket) == one {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// drain leaves what others hold to those that still lease.
func (h holders) drain() {
	for _, one := range h {
		one.beating.Lock()
		one.draining = true
		one.beating.Unlock()
	}
}

// run makes heartbeats until ctx ends.
func (h holders) run(ctx context.Context, log *loop.Log) {
	var loops []loop.Loop
	for _, one := range h {
		loops = append(loops, loop.Loop{Interval: heartbeatInterval, Step: one.heartbeat})
	}
	loop.Run(ctx, log, loops...)
}

// holder makes heartbeats, and watches those of other dispatchers. It compares no clocks: only for how long a heartbeat stays the last one while
// this dispatcher reaches Redis.
type holder struct {
	outbox   *outbox.Outbox
	bucket   session.Bucket
	identity string
	log      *loop.Log
	// removed is set when other holders were removed, whose leases are to be freed.
	removed loop.Signal

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
func (h *holder) current() (name string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name, h.name != "" && time.Since(h.at) < trustTime
}

// valid reports whether leases under the name may be used now.
func (h *holder) valid(name string) bool {
	current, ok := h.current()
	return ok && current == name
}

// confirm returns the name to lease under. If the last heartbeat was too long ago, it makes another one.
func (h *holder) confirm(ctx context.Context) (name string, err error) {
	if name, ok := h.current(); ok {
		return name, nil
	}
	h.beating.Lock()
	defer h.beating.Unlock()
	if name, ok := h.current(); ok {
		return name, nil
	}
	if time.Since(h.failedAt) < heartbeatInterval {
		return "", errNoHeartbeat
	}
	if _, err := h.beat(ctx); err != nil {
		return "", err
	}
	name, _ = h.current()
	return name, nil
}

// await waits until leases under the name may be used. It reports false if they never may, or not in time.
func (h *holder) await(ctx context.Context, name string, now func() time.Time, until time.Time) bool {
	for {
		switch current, ok := h.current(); {
		case current != name, now().After(until):
			return false
		case ok:
			return true
		case !loop.Pause(ctx, confirmPause):
			return false
		}
	}
}

// heartbeat makes a heartbeat, and removes holders that made none for too long.
func (h *holder) heartbeat(ctx context.Context) (more bool, err error) {
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
			h.removed.Set()
		}
	}
	return false, nil
}

// beat makes a heartbeat, and returns the holders that made none for too long. A holder that was removed itself gets another name.
func (h *holder) beat(ctx context.Context) (silent map[string]string, err error) {
	name, _ := h.current()
	isNew := name == ""
	if isNew {
		name = h.identity + "-" + strings.ToLower(rand.Text()[:8])
	}
	sent := time.Now()
	heartbeats, err := h.outbox.Heartbeat(ctx, h.bucket, name, isNew)
	switch {
	case errors.Is(err, outbox.ErrHolderRemoved):
		h.log.Warn("this dispatcher made no heartbeat for too long, or Redis lost it: others take over its events")
		h.mu.Lock()
		h.name = ""
		h.mu.Unlock()
		return h.beat(ctx)
	case err != nil:
		h.failedAt = time.Now()
		return nil, err
	}
	delete(heartbeats, name)
	h.mu.Lock()
	defer h.mu.Unlock()
	continuous := sent.Sub(h.at) < trustTime
	h.name, h.at = name, sent
	return h.observe(heartbeats, continuous, time.Now()), nil
}

// observe notes the heartbeats of other holders, and returns those that made none for too long. If it is not continuous, this dispatcher may have
// been frozen, or Redis silent for all: then they have as long again.
func (h *holder) observe(heartbeats map[string]string, continuous bool, now time.Time) (silent map[string]string) {
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

// orphans returns the removed holders whose leases are to be freed.
func (h *holder) orphans() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.orphaned))
}

func (h *holder) freed(orphan string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.orphaned, orphan)
}

// freeLeases frees the leases of holders that this one removed, and leases their events. If it is killed half way, another dispatcher removes the
// holder again.
func (d *dispatcher) freeLeases(ctx, attemptCtx context.Context, h *holder) error {
	for _, orphan := range h.orphans() {
		events := 0
		for _, bucket := range d.holders.buckets(h) {
			freed, err := d.outbox.FreeLeases(ctx, bucket, orphan)
			if freed > 0 {
				d.startDelivery(ctx, attemptCtx, bucket)
			}
			if err != nil {
				return err
			}
			events += freed
		}
		if err := d.outbox.ForgetHolder(ctx, h.bucket, orphan); err != nil {
			return err
		}
		h.freed(orphan)
		if events > 0 {
			d.log.Warn("took over the events of a dispatcher that made no heartbeat", "holder", orphan, "events", events)
		}
	}
	return nil
}
