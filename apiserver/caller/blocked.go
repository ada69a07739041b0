package caller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
)

const (
	// blockedInterval is between two writes of the counts to Redis.
	blockedInterval = 5 * time.Second
	// maxBlockedMerchants is the number of merchants that are counted in one interval, and maxBlocks that of the blocks of each.
	maxBlockedMerchants = 1024
	maxBlocks           = 16
)

// blockedAddresses counts requests with a good key from addresses that the merchant's allowlist does not allow, and adds the counts to
// Redis, off the request's path. Memory and writes are bounded, from whatever addresses the requests come.
type blockedAddresses struct {
	add     func(ctx context.Context, merchantID string, requests map[string]int64) error
	forEach func(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error
	total   *prometheus.CounterVec
	log     *slog.Logger

	mu       sync.Mutex
	requests map[string]map[string]int64 // by merchant id and block, since they were last written
}

func newBlockedAddresses(addresses *blocked.Store, client *redis.Client, log *slog.Logger, registerer prometheus.Registerer) *blockedAddresses {
	b := &blockedAddresses{add: addresses.Add, forEach: client.ForEach, log: log, requests: map[string]map[string]int64{}}
	b.total = promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_blocked_address_requests_total",
		Help: "Requests with a good key from an address that the allowlist of merchant or key does not allow, by the merchant's mode: enforce (response 401) or report.",
	}, []string{"mode"})
	for _, reportOnly := range []bool{false, true} {
		b.total.WithLabelValues(modeLabel(reportOnly))
	}
	return b
}

func modeLabel(reportOnly bool) string {
	if reportOnly {
		return "report"
	}
	return "enforce"
}

// count counts a request after its response is known. With the mode Report, Redis may have refused its key.
func (b *blockedAddresses) count(e *web.Event) {
	if e.Blocked.MerchantID == "" || errors.Is(e.Err, admission.ErrKeyRejected) {
		return
	}
	b.total.WithLabelValues(modeLabel(e.Blocked.ReportOnly)).Inc()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.countBlock(e.Blocked.MerchantID, e.Blocked.Block, 1)
}

// countBlock expects the lock. Beyond the bound, blocks are counted together.
func (b *blockedAddresses) countBlock(merchantID, block string, requests int64) {
	blocks := b.requests[merchantID]
	if blocks == nil {
		if len(b.requests) >= maxBlockedMerchants {
			return
		}
		blocks = map[string]int64{}
		b.requests[merchantID] = blocks
	}
	if _, counted := blocks[block]; !counted && len(blocks) >= maxBlocks {
		block = blocked.OtherBlocks
	}
	blocks[block] += requests
}

// run writes the counts until ctx ends, and then what is left.
func (b *blockedAddresses) run(ctx context.Context) {
	ticker := time.NewTicker(blockedInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			b.flush(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			b.flush(ctx)
		}
	}
}

// flush writes the counts of all merchants. It writes the counts of one Redis server until that server fails; the next flush writes the rest.
func (b *blockedAddresses) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, blockedInterval)
	defer cancel()
	b.mu.Lock()
	counted := b.requests
	b.requests = map[string]map[string]int64{}
	b.mu.Unlock()
	merchants := map[session.Bucket][]string{}
	for merchantID := range counted {
		bucket := session.MerchantBucket(merchantID)
		merchants[bucket] = append(merchants[bucket], merchantID)
	}
	var written sync.Map // by merchant id
	_ = b.forEach(ctx, slices.Collect(maps.Keys(merchants)), func(ctx context.Context, bucket session.Bucket) error {
		for _, merchantID := range merchants[bucket] {
			err := b.add(ctx, merchantID, counted[merchantID])
			if err == nil {
				written.Store(merchantID, true)
				continue
			}
			b.log.Warn("could not record blocked addresses; retrying", "merchantID", merchantID, "error", err)
			if errors.Is(err, redis.ErrUnavailable) { // the others would fail, too
				return err
			}
		}
		return nil
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for merchantID, blocks := range counted {
		if _, done := written.Load(merchantID); done {
			continue
		}
		for block, requests := range blocks {
			b.countBlock(merchantID, block, requests)
		}
	}
}
