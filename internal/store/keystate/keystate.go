// Package keystate is what Redis knows of API keys: overrides, which are newer than the published record that a replica knows, and last uses.
// An admission reads the one and writes the other.
package keystate

import (
	"cmp"
	"embed"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The kinds of keys.
const (
	// OverrideKey + key id says which digests of one ApiKey are accepted; see lib/admission.lua.
	OverrideKey = "key:"
	// LastUseKey + key id holds the last uses of one ApiKey, as published.DigestUses. lib/admission.lua writes them.
	LastUseKey = "used:"
	// lastUsesReadKey holds since when no last use was lost and when they were last read, in milliseconds; see read_last_uses.lua.
	lastUsesReadKey = "uses"
)

//go:embed *.lua
var files embed.FS

var (
	writeOverrideScript = script("write_override")
	endOverrideScript   = script("end_override")
	expireEndedScript   = script("expire_ended")
	readOverridesScript = script("read_overrides")
	readLastUsesScript  = script("read_last_uses")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), redis.Parts{"clock": redis.Clock}, redis.Constants{})
}

// Store is the overrides and last uses in Redis. It is safe for concurrent use.
type Store struct {
	redis       *redis.Client
	lastUseStep time.Duration
}

// New returns what a Redis knows of API keys. lastUseStep is how often the last use of each digest is written, at most, by each API replica; zero:
// published.LastUseStep.
func New(client *redis.Client, lastUseStep time.Duration) *Store {
	return &Store{client, cmp.Or(lastUseStep, published.LastUseStep)}
}

// Ref names an ApiKey.
type Ref struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
}

func (r Ref) space() redis.Keyspace {
	return redis.BucketKeyspace(session.MerchantBucket(r.MerchantID))
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
