package store

import (
	"context"
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
	// BlockedShown is how long a block is kept after its last request.
	BlockedShown = 24 * time.Hour
	// blockedReported is longer, so that a dispatcher is there to remove from the status what is not blocked any more.
	blockedReported = 30 * 24 * time.Hour
	blockedPage     = 100
)

// Blocked is what is known of a merchant's blocked addresses, over all replicas: of requests with a good key from addresses that the
// merchant's allowlist does not allow.
type Blocked struct {
	MerchantID string
	// Blocks are in the order of their requests, the most first.
	Blocks []BlockedBlock
	// Reported are the blocks that were reported last, and when. Without a time nothing is reported; with a time and no blocks it is unknown
	// what is.
	Reported   string
	ReportedAt time.Time

	reportTAT time.Time
}

// BlockedBlock is a block of blocked addresses.
type BlockedBlock struct {
	// Block is an allowlist.List.Block, or OtherBlocks.
	Block    string
	Requests int64
	LastSeen time.Time
}

// MayReportChange reports whether the merchant's budget, which it has for all changes of its status, allows a report of changed blocks.
func (b *Blocked) MayReportChange(now time.Time) bool {
	return outbox.MayReportChange(b.reportTAT, now)
}

// AddBlocked adds numbers of requests from blocked addresses, by their block. Errors: redis.ErrCorrupt, redis.ErrUnavailable; then it is
// unknown whether they were added.
func (s *Store) AddBlocked(ctx context.Context, merchantID string, requests map[string]int64) error {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call := redis.NewCall(addBlockedScript)
	call.Key("requests_key", space, merchantBlockedKey, merchantID)
	call.Key("seen_key", space, merchantBlockedKey, merchantID, seenSuffix)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Text("merchant", merchantID)
	call.Text("other", OtherBlocks)
	for block, count := range requests {
		call.More(block)
		call.MoreInt(count)
	}
	return s.changeBlocked(ctx, &call)
}

// Blocked returns the blocked addresses of all merchants of a bucket, the least recently reported first, and the time of Redis. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Blocked(ctx context.Context, bucket session.Bucket) (all []Blocked, now time.Time, err error) {
	space := redis.BucketKeyspace(bucket)
	for first, more := int64(0), true; more; first += blockedPage {
		call := redis.NewCall(listBlockedScript)
		call.Key("merchants_key", space, outbox.BlockedKey)
		call.Text("blocked_prefix", space.Key(merchantBlockedKey))
		call.Text("seen_suffix", seenSuffix)
		call.Text("reported_suffix", reportedSuffix)
		call.Text("endpoint_prefix", space.Key(outbox.EndpointKey))
		call.Int("first", first)
		call.Int("last", first+blockedPage-1)
		reply, err := s.redis.Run(ctx, &call)
		if err != nil {
			return nil, now, fmt.Errorf("read blocked addresses: %w", err)
		}
		reply.RequireOK()
		now = reply.Millis()
		more = reply.Int() == blockedPage
		for rows := reply.List(); rows.More(); {
			row := rows.List()
			all = append(all, decodeBlocked(&row))
			reply.Require(row.Err() == nil)
		}
		if err := reply.Err(); err != nil {
			return nil, now, fmt.Errorf("read blocked addresses: %w", err)
		}
	}
	return all, now, nil
}

func decodeBlocked(row *redis.Reply) Blocked {
	found := Blocked{MerchantID: row.Text()}
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
		found.Blocks = append(found.Blocks, BlockedBlock{block, requests.Int(), lastSeen[block]})
	}
	row.Require(requests.Err() == nil && seen.Err() == nil)
	return found
}

// RecordBlockedReport remembers that these blocks were reported. If another dispatcher has reported meanwhile, a report must follow. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) RecordBlockedReport(ctx context.Context, before Blocked, blocks string) error {
	space := redis.BucketKeyspace(session.MerchantBucket(before.MerchantID))
	var at int64
	if !before.ReportedAt.IsZero() {
		at = before.ReportedAt.UnixMilli()
	}
	call := redis.NewCall(reportBlockedScript)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Key("reported_key", space, merchantBlockedKey, before.MerchantID, reportedSuffix)
	call.Key("endpoint_key", space, outbox.EndpointKey, before.MerchantID)
	call.Text("merchant", before.MerchantID)
	call.Int("before", at)
	call.Text("blocks", blocks)
	return s.changeBlocked(ctx, &call)
}

// ForgetBlocked forgets the blocked addresses of a merchant that is gone. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ForgetBlocked(ctx context.Context, merchantID string) error {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call := redis.NewCall(forgetBlockedScript)
	call.Key("merchants_key", space, outbox.BlockedKey)
	call.Key("requests_key", space, merchantBlockedKey, merchantID)
	call.Key("seen_key", space, merchantBlockedKey, merchantID, seenSuffix)
	call.Key("reported_key", space, merchantBlockedKey, merchantID, reportedSuffix)
	call.Text("merchant", merchantID)
	return s.changeBlocked(ctx, &call)
}

func (s *Store) changeBlocked(ctx context.Context, call *redis.Call) error {
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
