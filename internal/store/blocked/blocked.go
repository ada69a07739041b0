// Package blocked keeps the blocked addresses of merchants in Redis: which addresses requests with a good key came from that the merchant's
// allowlist does not allow, over all API replicas. Dispatchers report them in the status of Merchants.
package blocked

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	// MaxBlocks is the number of blocks that are kept of a merchant's blocked addresses, those with the most requests.
	MaxBlocks = 32
	// OtherBlocks stands for all blocks that are not kept. It may be one more.
	OtherBlocks = "other"
	// Shown is how long a block is kept after its last request.
	Shown = 24 * time.Hour
	// reportRetention is longer, so that a dispatcher is there to remove from the status what is not blocked any more.
	reportRetention = 30 * 24 * time.Hour
	pageSize        = 100
)

// The kinds of keys. addressesKey + merchant id holds the merchant's blocked addresses, as blocks by their requests. With seenSuffix it holds them
// by their last request, in milliseconds, and with reportedSuffix those that were reported last. outbox.BlockedKey lists the merchants of a bucket.
const (
	addressesKey   = "blocked:"
	seenSuffix     = ":seen"
	reportedSuffix = ":reported"
)

//go:embed *.lua
var files embed.FS

var (
	addScript    = script("add_blocked")
	listScript   = script("list_blocked")
	reportScript = script("report_blocked")
	forgetScript = script("forget_blocked")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), outbox.Parts, outbox.Constants.With(redis.Constants{"const": {
		"BLOCKED_REPORTED_MS": redis.LuaInt(reportRetention.Milliseconds()),
		"BLOCKED_SHOWN_MS":    redis.LuaInt(Shown.Milliseconds()),
		"MAX_BLOCKS":          redis.LuaInt(MaxBlocks),
	}}))
}

// Store is the blocked addresses in Redis. It is safe for concurrent use.
type Store struct{ redis *redis.Client }

// New returns the blocked addresses in a Redis.
func New(client *redis.Client) *Store { return &Store{client} }

// Addresses is what is known of a merchant's blocked addresses.
type Addresses struct {
	MerchantID string
	// Blocks are in the order of their requests, the most first.
	Blocks []Block
	// Reported are the blocks that were reported last, and when. Without a time nothing is reported; with a time and no blocks it is unknown
	// what is.
	Reported   string
	ReportedAt time.Time

	reportTAT time.Time
}

// Block is a block of blocked addresses.
type Block struct {
	// Block is an allowlist.List.Block, or OtherBlocks.
	Block    string
	Requests int64
	LastSeen time.Time
}

// MayReportChange reports whether the merchant's budget, which it has for all changes of its status, allows a report of changed blocks.
func (b *Addresses) MayReportChange(now time.Time) bool {
	return outbox.MayReportChange(b.reportTAT, now)
}

// Add adds numbers of requests from blocked addresses, by their block. Errors: redis.ErrCorrupt, redis.ErrUnavailable; then it is
// unknown whether they were added.
func (s *Store) Add(ctx context.Context, merchantID string, requests map[string]int64) error {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call := redis.NewCall(addScript)
	call.Key("requests_key", space, addressesKey, merchantID)
	call.Key("seen_key", space, addressesKey, merchantID, seenSuffix)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Text("merchant", merchantID)
	call.Text("other", OtherBlocks)
	for block, count := range requests {
		call.More(block)
		call.MoreInt(count)
	}
	return s.change(ctx, &call)
}

// List returns the blocked addresses of all merchants of a bucket, the least recently reported first, and the time of Redis. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) List(ctx context.Context, bucket session.Bucket) (all []Addresses, now time.Time, err error) {
	space := redis.BucketKeyspace(bucket)
	for first, more := int64(0), true; more; first += pageSize {
		call := redis.NewCall(listScript)
		call.Key("merchants_key", space, outbox.BlockedKey)
		call.Text("blocked_prefix", space.Key(addressesKey))
		call.Text("seen_suffix", seenSuffix)
		call.Text("reported_suffix", reportedSuffix)
		call.Text("endpoint_prefix", space.Key(outbox.EndpointKey))
		call.Int("first", first)
		call.Int("last", first+pageSize-1)
		reply, err := s.redis.Run(ctx, &call)
		if err != nil {
			return nil, now, fmt.Errorf("read blocked addresses: %w", err)
		}
		reply.RequireOK()
		now = reply.Millis()
		more = reply.Int() == pageSize
		for rows := reply.List(); rows.More(); {
			row := rows.List()
			all = append(all, decode(&row))
			reply.Require(row.Err() == nil)
		}
		if err := reply.Err(); err != nil {
			return nil, now, fmt.Errorf("read blocked addresses: %w", err)
		}
	}
	return all, now, nil
}

func decode(row *redis.Reply) Addresses {
	found := Addresses{MerchantID: row.Text()}
	if at := row.Millis(); at.UnixMilli() != 0 {
		found.ReportedAt = at
	}
	found.Reported, found.reportTAT = row.OptionalText(), row.OptionalMillis()
	requests, seen := row.List(), row.List()
	lastSeen := map[string]time.Time{}
	for seen.More() {
		block := seen.Text()
		lastSeen[block] = seen.Millis()
	}
	for requests.More() {
		block := requests.Text()
		found.Blocks = append(found.Blocks, Block{block, requests.Int(), lastSeen[block]})
	}
	row.Require(requests.Err() == nil && seen.Err() == nil)
	return found
}

// RecordReport remembers that these blocks were reported. If another dispatcher has reported meanwhile, a report must follow. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) RecordReport(ctx context.Context, before Addresses, blocks string) error {
	space := redis.BucketKeyspace(session.MerchantBucket(before.MerchantID))
	var at int64
	if !before.ReportedAt.IsZero() {
		at = before.ReportedAt.UnixMilli()
	}
	call := redis.NewCall(reportScript)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Key("reported_key", space, addressesKey, before.MerchantID, reportedSuffix)
	call.Key("endpoint_key", space, outbox.EndpointKey, before.MerchantID)
	call.Text("merchant", before.MerchantID)
	call.Int("before", at)
	call.Text("blocks", blocks)
	return s.change(ctx, &call)
}

// Forget forgets the blocked addresses of a merchant that is gone. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Forget(ctx context.Context, merchantID string) error {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call := redis.NewCall(forgetScript)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Key("requests_key", space, addressesKey, merchantID)
	call.Key("seen_key", space, addressesKey, merchantID, seenSuffix)
	call.Key("reported_key", space, addressesKey, merchantID, reportedSuffix)
	call.Text("merchant", merchantID)
	return s.change(ctx, &call)
}

func (s *Store) change(ctx context.Context, call *redis.Call) error {
	reply, err := s.redis.Run(ctx, call)
	if err == nil {
		reply.RequireOK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("change blocked addresses: %w", err)
	}
	return nil
}
