// Package store keeps sessions, idempotency keys, rate counters and key overrides in Redis, and is
// the only importer of the Redis client. Every operation is one Lua script, hence atomic, and one
// round trip: it first decides whether the caller is admitted, then does its work. The package
// knows nothing of HTTP. docs/design/redis.md tells the whole.
package store
