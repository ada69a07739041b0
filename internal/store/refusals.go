package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	// MaxRefusedBlocks is the number of address blocks that are kept of a merchant's refusals. All others are one count.
	MaxRefusedBlocks = 16
	// RefusalsShown is how long a refused block is kept after its last request.
	RefusalsShown = 24 * time.Hour
	// refusalsKeep is longer, so that a dispatcher is there to remove from the status what is not refused any more.
	refusalsKeep = 30 * 24 * time.Hour
	refusalPage  = 100
)

// Refusals are requests with a good key from addresses that the merchant's allowlist does not allow.
type Refusals struct {
	MerchantID string
	// Allowlist is the fingerprint of the list that refused them.
	Allowlist string
	// Blocks are counts by address block, Others is the count of all other blocks.
	Blocks map[netip.Prefix]int64
	Others int64
}

// AddRefusals adds refusals to those of the merchant, and returns the blocks that are kept, at most MaxRefusedBlocks. Errors:
// redis.ErrCorrupt, redis.ErrUnavailable; then it is unknown whether they were added.
func (s *Store) AddRefusals(ctx context.Context, refusals Refusals) ([]netip.Prefix, error) {
	args := []any{refusals.MerchantID, refusals.Allowlist, refusals.Others}
	for block, count := range refusals.Blocks {
		args = append(args, block.String(), count)
	}
	reply, err := s.redis.Run(ctx, recordRefusalsScript, refusalKeys(refusals.MerchantID), args...)
	if err != nil {
		return nil, fmt.Errorf("add refusals: %w", err)
	}
	reply.OK()
	var kept []netip.Prefix
	for blocks := reply.List(); blocks.More(); {
		block, err := netip.ParsePrefix(blocks.Text())
		reply.Break(err == nil)
		kept = append(kept, block)
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("add refusals: %w", err)
	}
	return kept, nil
}

func refusalKeys(merchantID string) []string {
	space := redis.KeyspaceOf(session.BucketOf(merchantID))
	return []string{space.Key(redis.MerchantRefusalsKey, merchantID), space.Key(redis.RefusalsKey)}
}

func (s *Store) changeRefusals(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	reply, err := s.redis.Run(ctx, script, keys, args...)
	if err == nil {
		reply.OK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("change refusals: %w", err)
	}
	return nil
}

// RefusedBlock is the refusals of one address block.
type RefusedBlock struct {
	// Block is empty if it stands for several.
	Block       netip.Prefix
	Count       int64
	First, Last time.Time
	// Allowlist is the fingerprint of the list that refused last.
	Allowlist string
}

// MerchantRefusals are all refusals of a merchant, over all replicas, and what was reported of them.
type MerchantRefusals struct {
	MerchantID string
	// Blocks are in the order of their counts, the highest first.
	Blocks   []RefusedBlock
	Others   RefusedBlock
	Reported ReportedRefusals

	text string
	paid time.Time
}

// ReportedRefusals is what was reported last; zero: nothing.
type ReportedRefusals struct {
	Blocks string
	Count  int64
	At     time.Time
}

// MayReportChange reports whether the merchant's budget, which it has for all changes of its status, allows a report of changed blocks.
func (m *MerchantRefusals) MayReportChange(now time.Time) bool {
	return outbox.MayReportChange(m.paid, now)
}

// refusalRecord is the JSON of refusals.lua.
type refusalRecord struct {
	Blocks   map[string]refusalEntry `json:"b"`
	Others   refusalEntry            `json:"o"`
	Reported struct {
		Blocks string  `json:"b"`
		Count  float64 `json:"n"`
		At     float64 `json:"t"`
	} `json:"r"`
}

// refusalEntry has numbers as Lua writes them.
type refusalEntry struct {
	Count     float64 `json:"n"`
	First     float64 `json:"f"`
	Last      float64 `json:"l"`
	Allowlist string  `json:"a"`
}

func (e refusalEntry) block(block netip.Prefix) RefusedBlock {
	return RefusedBlock{block, int64(e.Count), millis(e.First), millis(e.Last), e.Allowlist}
}

func millis(ms float64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

// decode leaves out what is not readable: the next report replaces it.
func (m *MerchantRefusals) decode() {
	var record refusalRecord
	if json.Unmarshal([]byte(m.text), &record) != nil {
		return
	}
	for text, entry := range record.Blocks {
		if block, err := netip.ParsePrefix(text); err == nil {
			m.Blocks = append(m.Blocks, entry.block(block))
		}
	}
	slices.SortFunc(m.Blocks, func(a, b RefusedBlock) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.Block.Addr().Compare(b.Block.Addr()))
	})
	m.Others = record.Others.block(netip.Prefix{})
	m.Reported = ReportedRefusals{record.Reported.Blocks, int64(record.Reported.Count), millis(record.Reported.At)}
}

// Refusals returns those of all merchants of a bucket, and the time of Redis. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Refusals(ctx context.Context, bucket session.Bucket) (all []MerchantRefusals, now time.Time, err error) {
	space := redis.KeyspaceOf(bucket)
	for first := 0; len(all) == first; first += refusalPage {
		reply, err := s.redis.Run(ctx, listRefusalsScript, []string{space.Key(redis.RefusalsKey)},
			space.Key(redis.MerchantRefusalsKey), space.Key(redis.EndpointKey), first, first+refusalPage-1)
		if err != nil {
			return nil, now, fmt.Errorf("read refusals: %w", err)
		}
		reply.OK()
		now = reply.Millis()
		for rows := reply.List(); rows.More(); {
			row := rows.List()
			found := MerchantRefusals{MerchantID: row.Text(), text: row.OptionalText(), paid: row.OptionalMillis()}
			reply.Break(row.Err() == nil)
			found.decode()
			all = append(all, found)
		}
		if err := reply.Err(); err != nil {
			return nil, now, fmt.Errorf("read refusals: %w", err)
		}
	}
	return all, now, nil
}

// RefusalsReported remembers that these blocks were reported, and the count of all their refusals. If another dispatcher has reported
// meanwhile, a report must follow. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) RefusalsReported(ctx context.Context, refusals MerchantRefusals, blocks string, count int64) error {
	keys := refusalKeys(refusals.MerchantID)
	keys[1] = redis.KeyspaceOf(session.BucketOf(refusals.MerchantID)).Key(redis.EndpointKey, refusals.MerchantID)
	return s.changeRefusals(ctx, reportRefusalsScript, keys, refusals.Reported.Blocks, blocks, count)
}

// ForgetRefusals forgets refusals, unless some were added after they were read. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ForgetRefusals(ctx context.Context, refusals MerchantRefusals) error {
	return s.changeRefusals(ctx, forgetRefusalsScript, refusalKeys(refusals.MerchantID), refusals.MerchantID, refusals.text)
}

// refusalLimits are the constants of refusals.lua.
var refusalLimits = strings.NewReplacer(
	"REFUSALS_KEEP", strconv.FormatInt(refusalsKeep.Milliseconds(), 10),
	"REFUSALS_SHOWN", strconv.FormatInt(RefusalsShown.Milliseconds(), 10),
	"REFUSED_BLOCKS", strconv.Itoa(MaxRefusedBlocks))

func refusalPart(name string) string { return refusalLimits.Replace(redis.Part(files, name)) }

var refusals = refusalPart("refusals")

// The scripts of refusals.
var (
	recordRefusalsScript = redis.NewScript("record_refusals", redis.Clock, refusals, refusalPart("record_refusals"))
	listRefusalsScript   = redis.NewScript("list_refusals", redis.Clock, refusalPart("list_refusals"))
	reportRefusalsScript = redis.NewScript("report_refusals", redis.Clock, outbox.Budget, refusals, refusalPart("report_refusals"))
	forgetRefusalsScript = redis.NewScript("forget_refusals", redis.Clock, refusalPart("forget_refusals"))
)
