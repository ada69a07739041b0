package dispatcher

import (
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// holds are the accounts of which no event can be sent or dropped now, for a reason that all their events share: nothing is published
// of the merchant, or it has no signing secret. A held account costs the same whatever its backlog, which stays in Redis untouched.
type holds struct {
	mu   sync.Mutex
	held [session.Buckets]map[string]hold
}

// hold lasts until then, or until what is published allows to send or to drop this event of the account.
type hold struct {
	lease outbox.Lease
	until time.Time
}

func (h *holds) add(lease outbox.Lease, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bucket := lease.Event.Bucket()
	if h.held[bucket] == nil {
		h.held[bucket] = map[string]hold{}
	}
	h.held[bucket][lease.Event.Account()] = hold{lease, until}
}

// accounts returns those that are held. It forgets the others.
func (h *holds) accounts(bucket session.Bucket, now time.Time, waits func(outbox.Lease) bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var held []string
	for account, one := range h.held[bucket] {
		if !now.Before(one.until) || !waits(one.lease) {
			delete(h.held[bucket], account)
			continue
		}
		held = append(held, account)
	}
	return held
}
