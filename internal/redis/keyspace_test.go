package redis_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// The buckets are in the slots that Redis says, and each primary has the slots that `redis-cli --cluster create` gives it.
func TestKeyspace_BucketsPerPrimary(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	inspect := storetest.Inspect(t, server)
	buckets := [storetest.Slots]int{}
	for bucket := range session.Bucket(session.Buckets) {
		slot := inspect.ClusterKeySlot(t.Context(), redis.BucketKeyspace(bucket).Key("queue")).Val()
		buckets[slot]++
	}
	for primaries := 1; primaries <= session.Buckets; primaries++ {
		share := float64(storetest.Slots) / float64(primaries)
		first := 0
		for i := range primaries {
			last := int(math.Round(float64(i+1)*share - 1))
			count := 0
			for _, here := range buckets[first : last+1] {
				count += here
			}
			if most := math.Ceil(float64(session.Buckets) / float64(primaries)); float64(count) > most {
				t.Errorf("primary %d of %d has %d buckets, want at most %.0f", i+1, primaries, count, most)
			}
			first = last + 1
		}
	}
}

// A session's key is in the bucket of the merchant that its id names.
func TestKey_OfASession(t *testing.T) {
	id, err := session.ParseID("ps_abcdefgh2345456789abcdefghijkl")
	if err != nil {
		t.Fatal(err)
	}
	key, bucket := redis.BucketKeyspace(id.Bucket()).Key("session:", id.String()), fmt.Sprintf("{b%02x", session.MerchantBucket("abcdefgh2345"))
	if !strings.HasPrefix(key, bucket) || !strings.HasSuffix(key, "}:session:"+id.String()) {
		t.Errorf("the key is %s, want it in %s", key, bucket)
	}
}
