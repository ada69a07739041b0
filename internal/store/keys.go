package store

import (
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// How long things are kept. The limiter's entry ends by itself when its debt is paid; a session that no rail has reported of is
// kept for its lifetime and Options.SessionRetention.
const (
	// idempotencyLifetime is the least; an Idempotency-Key never ends before its session expires.
	idempotencyLifetime = 24 * time.Hour
	// longestLifetime is the most that a Merchant may ask for.
	longestLifetime = 24 * time.Hour
	// reportLifetime is the least from a rail's report on: a session must be known for as long as a rail repeats its reports, and
	// never ends sooner for one.
	reportLifetime = 30 * 24 * time.Hour
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

func keyspaceOf(bucket session.Bucket) keyspace { return keyspaces[bucket%session.Buckets] }

// keyspaces are those of all buckets, for each request needs one.
var keyspaces = func() (all [session.Buckets]keyspace) {
	for bucket := range all {
		all[bucket] = keyspace(fmt.Sprintf("{b%02d}:", bucket))
	}
	return all
}()

// What the keys of a request begin with, behind the keyspace.
const (
	// rateKind holds the moment until which a caller's requests are paid for, in microseconds.
	rateKind = "rate:"
	// rotationsKind holds the same of the rotations of one ApiKey over HTTP.
	rotationsKind = "rate:rotations:"
	// overrideKind holds a verdict on the digests of one ApiKey; see admission.lua.
	overrideKind = "key:"
	// usedKind holds the last use of one ApiKey, in milliseconds.
	usedKind = "used:"
	// sessionKind holds the hash of one session.
	sessionKind = "session:"
	// eventKind holds the hash of one event.
	eventKind = "event:"
	// lineKind holds the ids of sessions with one lifetime, in milliseconds, in the order of their creation.
	lineKind = "expiry:"
	// idempotencyKind is followed by the merchant's id and the hash of the Idempotency-Key, and holds "<session id>
	// <fingerprint of its charge>".
	idempotencyKind = "idem:"
)

func (k keyspace) override(keyID string) string { return string(k) + overrideKind + keyID }

func (k keyspace) session(id session.ID) string { return string(k) + sessionKind + id.String() }

// expiry holds what is due by when it is, in milliseconds: lines, by their lifetime, and single sessions; see sweep.lua.
func (k keyspace) expiry() string { return string(k) + expiryKind }

// event holds the hash of one event.
func (k keyspace) event(id string) string { return string(k) + eventKind + id }

const (
	// queueKind and dueKind hold the events that are to be delivered, and the merchants in this queue; see queue.lua.
	queueKind, dueKind = "queue", "due"
	// expiryKind holds what is due for the sweep.
	expiryKind = "expiry"
)

func (k keyspace) queue() string { return string(k) + queueKind }

func (k keyspace) due() string { return string(k) + dueKind }

func (k keyspace) line(lifetime string) string { return string(k) + lineKind + lifetime }

// told holds the generation of one ApiKey that key.rotated told of last.
func (k keyspace) told(keyID string) string { return string(k) + "told:" + keyID }
