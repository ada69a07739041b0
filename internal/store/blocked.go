package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	// Reported are the blocks that were reported last, and when. Without a time nothing is reported; with a time and no blocks nobody knows
	// what is.
	Reported   string
	ReportedAt time.Time

	paid time.Time
}

// BlockedBlock is a block of blocked addresses.
type BlockedBlock struct {
	// Block is an allowlist.List.Block, or OtherBlocks.
	Block    string
	Requests int64
	LastSeen time.Time
}

// MayReportChange reports whether the merchant's budget, which it has for all changes of its status, allows a report of changed blocks.
func (b *Blocked) MayReportChange(now time.Time) bool { return outbox.MayReportChange(b.paid, now) }

// AddBlocked adds numbers of requests from blocked addresses, by their block. Errors: redis.ErrCorrupt, redis.ErrUnavailable; then it is
// unknown whether they were added.
func (s *Store) AddBlocked(ctx context.Context, merchantID string, requests map[string]int64) error {
	space := redis.KeyspaceOf(session.BucketOf(merchantID))
	keys := []string{
		space.Key(merchantBlockedKey, merchantID), space.Key(merchantBlockedKey, merchantID, seenSuffix), space.Key(outbox.BlockedKey),
	}
	args := []any{merchantID, OtherBlocks}
	for block, count := range requests {
		args = append(args, block, count)
	}
	return s.changeBlocked(ctx, addBlockedScript, keys, args...)
}

// Blocked returns the blocked addresses of all merchants of a bucket, the least recently reported first, and the time of Redis. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Blocked(ctx context.Context, bucket session.Bucket) (all []Blocked, now time.Time, err error) {
	space := redis.KeyspaceOf(bucket)
	for first, more := 0, true; more; first += blockedPage {
		reply, err := s.redis.Run(ctx, listBlockedScript, []string{space.Key(outbox.BlockedKey)},
			space.Key(merchantBlockedKey), seenSuffix, reportedSuffix, space.Key(outbox.EndpointKey), first, first+blockedPage-1)
		if err != nil {
			return nil, now, fmt.Errorf("read blocked addresses: %w", err)
		}
		reply.OK()
		now = reply.Millis()
		more = reply.Int() == blockedPage
		for rows := reply.List(); rows.More(); {
			row := rows.List()
			all = append(all, decodeBlocked(&row))
			reply.Break(row.Err() == nil)
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
	found.Reported, found.paid = row.OptionalText(), row.OptionalMillis()
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
	row.Break(requests.Err() == nil && seen.Err() == nil)
	return found
}

// BlockedReported remembers that these blocks were reported. If another dispatcher has reported meanwhile, a report must follow. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) BlockedReported(ctx context.Context, before Blocked, blocks string) error {
	space := redis.KeyspaceOf(session.BucketOf(before.MerchantID))
	keys := []string{
		space.Key(outbox.BlockedKey), space.Key(merchantBlockedKey, before.MerchantID, reportedSuffix),
		space.Key(outbox.EndpointKey, before.MerchantID),
	}
	var at int64
	if !before.ReportedAt.IsZero() {
		at = before.ReportedAt.UnixMilli()
	}
	return s.changeBlocked(ctx, reportBlockedScript, keys, before.MerchantID, at, blocks)
}

// ForgetBlocked forgets the blocked addresses of a merchant that is gone. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ForgetBlocked(ctx context.Context, merchantID string) error {
	space := redis.KeyspaceOf(session.BucketOf(merchantID))
	keys := []string{space.Key(outbox.BlockedKey), space.Key(merchantBlockedKey, merchantID)}
	for _, suffix := range []string{seenSuffix, reportedSuffix} {
		keys = append(keys, space.Key(merchantBlockedKey, merchantID, suffix))
	}
	return s.changeBlocked(ctx, forgetBlockedScript, keys, merchantID)
}

func (s *Store) changeBlocked(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	reply, err := s.redis.Run(ctx, script, keys, args...)
	if err == nil {
		reply.OK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("change blocked addresses: %w", err)
	}
	return nil
}

// blockedLimits are the constants of the scripts.
var blockedLimits = strings.NewReplacer(
	"BLOCKED_SHOWN", strconv.FormatInt(BlockedShown.Milliseconds(), 10),
	"BLOCKED_REPORTED", strconv.FormatInt(blockedReported.Milliseconds(), 10),
	"MAX_BLOCKS", strconv.Itoa(MaxBlocks))

func blockedPart(name string) string { return blockedLimits.Replace(redis.Part(files, name)) }

// The scripts of blocked addresses.
var (
	addBlockedScript    = redis.NewScript("add_blocked", redis.Clock, blockedPart("add_blocked"))
	listBlockedScript   = redis.NewScript("list_blocked", redis.Clock, blockedPart("list_blocked"))
	reportBlockedScript = redis.NewScript("report_blocked", redis.Clock, outbox.Budget, blockedPart("report_blocked"))
	forgetBlockedScript = redis.NewScript("forget_blocked", redis.Clock, blockedPart("forget_blocked"))
)
