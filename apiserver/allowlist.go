package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	// refusalInterval is between two writes of the counts to Redis.
	refusalInterval = 5 * time.Second
	// maxRefusedMerchants is the number of merchants that are counted in one interval.
	maxRefusedMerchants = 1024
)

// allowlistRefusals counts requests with a good key from addresses that the merchant's allowlist does not allow, and adds the counts to
// Redis, off the request's path. Memory and writes are bounded, from whatever addresses the requests come.
type allowlistRefusals struct {
	write func(context.Context, store.Refusals) (kept []netip.Prefix, err error)
	total *prometheus.CounterVec
	log   *slog.Logger

	mu        sync.Mutex
	merchants map[string]*blockCounts // by merchant id
}

func newAllowlistRefusals(refusals *store.Store, log *slog.Logger, registerer prometheus.Registerer) *allowlistRefusals {
	r := &allowlistRefusals{write: refusals.AddRefusals, log: log, merchants: map[string]*blockCounts{}}
	r.total = promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_allowlist_refusals_total",
		Help: "Requests with a good key from an address that the merchant's allowlist does not allow, by its mode: enforce (response 401) or report.",
	}, []string{"mode"})
	for _, reportOnly := range []bool{false, true} {
		r.total.WithLabelValues(modeLabel(reportOnly))
	}
	return r
}

func modeLabel(reportOnly bool) string {
	if reportOnly {
		return "report"
	}
	return "enforce"
}

// count counts a request after its response is known. With the mode Report, Redis may have refused its key.
func (r *allowlistRefusals) count(from caller, address netip.Addr, err error) {
	if !from.unlisted || !from.Live || !from.Merchant.Active() || errors.Is(err, store.ErrKeyRejected) {
		return
	}
	r.total.WithLabelValues(modeLabel(from.Merchant.ReportOnly)).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.merchants[from.Merchant.ID]
	if counts == nil {
		if len(r.merchants) >= maxRefusedMerchants {
			return
		}
		counts = &blockCounts{}
		r.merchants[from.Merchant.ID] = counts
	}
	counts.merchant = from.Merchant
	counts.add(allowlist.BlockOf(address), 1)
}

// run writes the counts until ctx ends, and then what is left.
func (r *allowlistRefusals) run(ctx context.Context) {
	every(ctx, refusalInterval, r.flush)
	r.flush(context.WithoutCancel(ctx))
}

// flush writes the counts of all merchants. What Redis does not take is written later.
func (r *allowlistRefusals) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusalInterval)
	defer cancel()
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.merchants))
	r.mu.Unlock()
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		if err := r.flushMerchant(ctx, id); err != nil {
			r.log.Warn("could not write refusals of an allowlist; retrying", "merchantID", id, "error", err)
			if errors.Is(err, redis.ErrUnavailable) {
				return
			}
		}
	}
}

func (r *allowlistRefusals) flushMerchant(ctx context.Context, id string) error {
	r.mu.Lock()
	counts := r.merchants[id]
	refusals := counts.take()
	if len(refusals.Blocks) == 0 {
		delete(r.merchants, id)
	}
	r.mu.Unlock()
	if len(refusals.Blocks) == 0 {
		return nil
	}
	kept, err := r.write(ctx, refusals)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		counts.restore(refusals)
		return err
	}
	counts.keep(kept)
	return nil
}

// blockCounts are the counts of one merchant since they were last written.
type blockCounts struct {
	merchant *directory.Merchant // as it was at the last refusal
	// kept are the blocks that Redis keeps. However many others there are, these are counted exactly.
	kept map[netip.Prefix]int64
	// recent are at most store.MaxRefusedBlocks others: the newest and the most frequent (space-saving).
	recent map[netip.Prefix]blockCount
	others int64
}

// blockCount has the weight of those whose place it took, and a count of its own.
type blockCount struct{ count, weight int64 }

func (c *blockCounts) add(block netip.Prefix, n int64) {
	if _, kept := c.kept[block]; kept {
		c.kept[block] += n
		return
	}
	if c.recent == nil {
		c.recent = map[netip.Prefix]blockCount{}
	}
	counted, known := c.recent[block]
	if !known && len(c.recent) >= store.MaxRefusedBlocks {
		lightest := c.lightest()
		counted.weight = c.recent[lightest].weight
		c.others += c.recent[lightest].count
		delete(c.recent, lightest)
	}
	c.recent[block] = blockCount{counted.count + n, counted.weight + n}
}

func (c *blockCounts) lightest() (lightest netip.Prefix) {
	for block, counted := range c.recent {
		if !lightest.IsValid() || counted.weight < c.recent[lightest].weight {
			lightest = block
		}
	}
	return lightest
}

// take returns the counts and sets them to zero.
func (c *blockCounts) take() store.Refusals {
	refusals := store.Refusals{
		MerchantID: c.merchant.ID, Allowlist: c.merchant.Allowlist.Fingerprint(), Blocks: map[netip.Prefix]int64{}, Others: c.others,
	}
	for block, count := range c.kept {
		if count > 0 {
			refusals.Blocks[block], c.kept[block] = count, 0
		}
	}
	for block, counted := range c.recent {
		refusals.Blocks[block] = counted.count
	}
	c.recent, c.others = nil, 0
	return refusals
}

// restore adds counts that were not written.
func (c *blockCounts) restore(refusals store.Refusals) {
	for block, count := range refusals.Blocks {
		c.add(block, count)
	}
	c.others += refusals.Others
}

// keep replaces the blocks that are counted exactly.
func (c *blockCounts) keep(blocks []netip.Prefix) {
	before := *c
	c.kept, c.recent = make(map[netip.Prefix]int64, len(blocks)), nil
	for _, block := range blocks {
		c.kept[block] = 0
	}
	for block, count := range before.kept {
		if count > 0 {
			c.add(block, count)
		}
	}
	for block, counted := range before.recent {
		c.add(block, counted.count)
	}
}
