package redis

import (
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Keyspace is what the keys of one bucket begin with. Its hash tag puts them all into one slot of a Redis Cluster.
type Keyspace string

// KeyspaceOf returns the keyspace of a bucket.
func KeyspaceOf(bucket session.Bucket) Keyspace { return keyspaces[bucket%session.Buckets] }

// slotLetters has a letter for each bucket. With it, the slots of all buckets are 256 apart, give or take 16, so any number of
// primaries with equal ranges of slots have equal numbers of buckets. Without it, CRC16 would leave 6 primaries with 8 to 14.
const slotLetters = "mknhkmhnhpiljiotkmhnmknhnvojloirnhmkhnkmkmsoijlihnkmnhmzmkligljo"

// keyspaces are those of all buckets, for each request needs one.
var keyspaces = func() (all [session.Buckets]Keyspace) {
	for bucket := range all {
		all[bucket] = Keyspace(fmt.Sprintf("{b%02x%c}:", bucket, slotLetters[bucket]))
	}
	return all
}()

// Key returns a key: its kind, and for those that end in a colon a name.
func (k Keyspace) Key(kind string, name ...string) string {
	if len(name) == 1 {
		return string(k) + kind + name[0] // at once, as for most
	}
	return string(k) + kind + strings.Join(name, "")
}

// All kinds of keys.
const (
	// RateKey + caller holds the moment until which the caller's requests are paid for, in microseconds.
	RateKey = "rate:"
	// RotationRateKey + key id holds the same of the rotations of one ApiKey by its key, and IssueRateKey of those on the internal port.
	RotationRateKey = "rate:rotations:"
	IssueRateKey    = "rate:issues:"
	// OverrideKey + key id says which digests of one ApiKey are accepted; see admission.lua.
	OverrideKey = "key:"
	// LastUseKey + key id holds the last use of one ApiKey, in milliseconds.
	LastUseKey = "used:"
	// MerchantBlockedKey + merchant id holds the merchant's blocked addresses, as blocks by their requests. With ":seen" it holds them by their
	// last request, in milliseconds, and with ":reported" those that were reported last. BlockedKey lists the merchants with any, by when
	// they were reported.
	MerchantBlockedKey = "blocked:"
	BlockedKey         = "blocked"
	// SessionKey + session id is the hash of one session.
	SessionKey = "session:"
	// IdempotencyKey + merchant id + ":" + hash of the Idempotency-Key holds "<key of the session> <fingerprint of its charge>".
	IdempotencyKey = "idem:"
	// ExpiryQueueKey + lifetime lists the sessions of one lifetime, in milliseconds, in the order of their creation.
	ExpiryQueueKey = "expiry:"
	// ExpiryKey says when the sweep must look at an expiry queue, by its lifetime, or at a single session; see sweep.lua.
	ExpiryKey = "expiry"

	// EventKey + event id is the hash of one event.
	EventKey = "event:"
	// QueueKey is the queue of the events to deliver, and DueKey the merchants in it; see queue.lua.
	QueueKey = "queue"
	DueKey   = "due"
	// DeadLettersKey holds the dead letters by the time they were given up, in milliseconds.
	DeadLettersKey = "dead"
	// MerchantDeadLettersKey + merchant id holds the same of one merchant.
	MerchantDeadLettersKey = "dead:"
	// EndpointKey + merchant id is the hash of how a merchant's endpoint fares.
	EndpointKey = "endpoint:"
	// WatchedKey holds the merchants whose endpoint fails, is disabled, or has a change of health to report, by time.
	WatchedKey = "watched"
	// RotationKey + key id holds the generation of one ApiKey in the last key.rotated.
	RotationKey = "rotation:"
	// TestKey + merchant id holds the fingerprint of the last testTrigger that was recorded.
	TestKey = "test:"

	// LoginKey + hash of a cookie holds one login of a person at the console. Its bucket is that of the person's account.
	LoginKey = "login:"
	// LoginsKey + hash of an account lists that person's logins by their end, in milliseconds.
	LoginsKey = "logins:"
)

// EndedChannel is the channel on which the scripts publish the id of each session that ends; see sessions.lua.
const EndedChannel = "ended"
