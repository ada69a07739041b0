// Package store keeps sessions, events, idempotency keys, rate counters and key overrides in Redis, and
// is the only importer of the Redis client. Every operation is one Lua script, hence atomic, and one
// round trip: that of a merchant or a payer first decides whether the caller is admitted, then does
// its work, and records what merchants are told of it. The package knows nothing of HTTP.
// docs/design/redis.md tells the whole.
package store
