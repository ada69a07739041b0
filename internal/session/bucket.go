package session

// Buckets is how many buckets there are. It is part of every session id and every key in Redis:
// changing it loses all of them.
const Buckets = 64

// Bucket is one of the partitions of Redis. All state of one merchant is in one bucket, so that
// one script can change it atomically, on a Redis Cluster too.
type Bucket uint8

// BucketOf returns the bucket of a merchant, by the FNV-1a hash (32 bits) of its bare id. It is written out because hash/fnv
// allocates for each id, and every request has one.
func BucketOf(merchantID string) Bucket {
	const basis, prime = 2166136261, 16777619
	hash := uint32(basis)
	for i := range len(merchantID) {
		hash = (hash ^ uint32(merchantID[i])) * prime
	}
	return Bucket(hash % Buckets)
}
