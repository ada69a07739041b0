package session

import "hash/fnv"

// Buckets is how many buckets there are. It is part of every session id and every key in Redis:
// changing it loses all of them.
const Buckets = 64

// Bucket is one of the partitions of Redis. All state of one merchant is in one bucket, so that
// one script can change it atomically, on a Redis Cluster too.
type Bucket uint8

// BucketOf returns the bucket of a merchant, by its bare id.
func BucketOf(merchantID string) Bucket {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(merchantID)) // never fails
	return Bucket(hash.Sum32() % Buckets)
}
