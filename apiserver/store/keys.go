package store

import (
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// How long what is kept beside sessions is kept. The limiter's entry ends by itself when its debt is
// paid; a session is kept for its lifetime and Options.SessionRetention.
const (
	// idempotencyLifetime is the least; an Idempotency-Key never ends before its session expires.
	idempotencyLifetime = 24 * time.Hour
	// eventLifetime is from the record of an event on, delivered or not.
	eventLifetime = 30 * 24 * time.Hour
	// toldLifetime is longer than any key should go without a rotation.
	toldLifetime = 400 * 24 * time.Hour
)

// OverrideLifetime is how long an override is kept. A replica whose watch is further behind may have
// missed a revocation for good.
const OverrideLifetime = 7 * 24 * time.Hour

// keyspace makes the keys of one bucket. Its hash tag puts them all into one slot of a Redis Cluster.
type keyspace string

func keyspaceOf(bucket session.Bucket) keyspace {
	return keyspace(fmt.Sprintf("{b%02d}:", bucket))
}

// rate holds the moment until which a caller's requests are paid for, in microseconds.
func (k keyspace) rate(subject string) string { return string(k) + "rate:" + subject }

// override holds a verdict on the digests of one ApiKey; see encode.
func (k keyspace) override(keyID string) string { return string(k) + "key:" + keyID }

// used holds the last use of one ApiKey, in milliseconds.
func (k keyspace) used(keyID string) string { return string(k) + "used:" + keyID }

// session holds the hash of one session.
func (k keyspace) session(id session.ID) string { return string(k) + "session:" + id.String() }

// idempotency holds "<session id> <fingerprint of its charge>".
func (k keyspace) idempotency(merchantID string, key session.IdempotencyKey) string {
	return string(k) + "idem:" + merchantID + ":" + key.Hash()
}

// expiry holds the pending sessions by their expiresAt, in milliseconds.
func (k keyspace) expiry() string { return string(k) + "expiry" }

// event holds the hash of one event.
func (k keyspace) event(id string) string { return string(k) + "event:" + id }

// due holds the events that are to be delivered by the time of their next attempt, in milliseconds.
func (k keyspace) due() string { return string(k) + "due" }

// told holds the generation of one ApiKey that key.rotated told of last.
func (k keyspace) told(keyID string) string { return string(k) + "told:" + keyID }
