package redis

import (
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Keyspace is what the keys of one bucket begin with. Its hash tag puts them all into one slot of a Redis Cluster.
type Keyspace string

// BucketKeyspace returns the keyspace of a bucket.
func BucketKeyspace(bucket session.Bucket) Keyspace { return keyspaces[bucket%session.Buckets] }

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

// Key returns a key: its kind, which the package that uses it defines, and for those that end in a colon a name.
func (k Keyspace) Key(kind string, name ...string) string {
	if len(name) == 1 {
		return string(k) + kind + name[0] // at once, as for most
	}
	return string(k) + kind + strings.Join(name, "")
}
