package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestSlotsAreThoseOfRedis(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	var asked []int
	for bucket := range len(bucketSlots()) {
		slot, err := client.ClusterKeySlot(t.Context(), fmt.Sprintf("{b%02d}:expiry", bucket)).Result()
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, int(slot))
	}
	slices.Sort(asked)
	if !slices.Equal(asked, bucketSlots()) {
		t.Errorf("the buckets are in the slots\n%v, says Redis, and we say\n%v", asked, bucketSlots())
	}
	if distinct := slices.Compact(asked); len(distinct) != len(bucketSlots()) {
		t.Errorf("%d buckets share their slot with another", len(bucketSlots())-len(distinct))
	}
}

func TestRangesCoverEverySlotOnce(t *testing.T) {
	for nodes := 1; nodes <= len(bucketSlots()); nodes++ {
		for _, ranges := range [][]slotRange{plainRanges(nodes), evenRanges(nodes)} {
			next := 0
			for _, r := range ranges {
				if r.first != next || r.last < r.first {
					t.Fatalf("%d nodes: %v", nodes, ranges)
				}
				next = r.last + 1
			}
			if next != slots {
				t.Fatalf("%d nodes: %v", nodes, ranges)
			}
		}
		if counts := bucketsIn(evenRanges(nodes)); slices.Max(counts)-slices.Min(counts) > 1 {
			t.Errorf("%d nodes have %v buckets", nodes, counts)
		}
	}
}

// Readers type in the numbers of the page, so they must be these.
func TestThePageHasTheRanges(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "performance", "scale.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range splitRows() {
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/performance/scale.md lacks the row\n%s", row)
		}
	}
}
