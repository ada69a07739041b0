package cluster

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// slotRange is from the first to the last slot, both included.
type slotRange struct{ first, last int }

func (r slotRange) String() string { return fmt.Sprintf("%d-%d", r.first, r.last) }

// tag is what Redis hashes of all keys of a bucket.
func tag(bucket session.Bucket) string { return fmt.Sprintf("b%02d", bucket) }

// slotOf is the slot of a key, or of what is in its braces: CRC16 in the variant of XMODEM, as the specification of Redis Cluster says.
func slotOf(tag string) int {
	const polynomial, top = 0x1021, 0x8000
	var sum uint16
	for _, b := range []byte(tag) {
		sum ^= uint16(b) << 8
		for range 8 {
			if sum&top != 0 {
				sum = sum<<1 ^ polynomial
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % slots
}

// bucketSlots are the slots of all buckets, in their order on the ring and not in that of the buckets.
func bucketSlots() []int {
	all := make([]int, session.Buckets)
	for i := range all {
		all[i] = slotOf(tag(session.Bucket(i)))
	}
	slices.Sort(all)
	return all
}

// plainRanges are those that `redis-cli --cluster create` gives to so many primaries: shares of equal length.
func plainRanges(nodes int) []slotRange {
	share := float64(slots) / float64(nodes)
	all := make([]slotRange, nodes)
	for i := range all {
		last := int(math.Round(share*float64(i+1) - 1))
		all[i].last = min(last, slots-1)
		if i > 0 {
			all[i].first = all[i-1].last + 1
		}
	}
	all[nodes-1].last = slots - 1
	return all
}

// evenRanges give each of so many primaries as many buckets as any other, or one less. The ends lie halfway between two buckets.
func evenRanges(nodes int) []slotRange {
	taken := bucketSlots()
	all := make([]slotRange, nodes)
	for i := range all {
		all[i].last = slots - 1
		if next := (i + 1) * len(taken) / nodes; i < nodes-1 {
			all[i].last = (taken[next-1] + taken[next]) / 2
		}
		if i > 0 {
			all[i].first = all[i-1].last + 1
		}
	}
	return all
}

// bucketsIn counts the buckets in each range.
func bucketsIn(ranges []slotRange) []int {
	counts := make([]int, len(ranges))
	for _, slot := range bucketSlots() {
		counts[slices.IndexFunc(ranges, func(r slotRange) bool { return r.first <= slot && slot <= r.last })]++
	}
	return counts
}

// spread is the largest of some shares to their mean: 1 is perfectly even.
func spread[N int | int64 | float64](shares []N) float64 {
	var sum N
	for _, share := range shares {
		sum += share
	}
	if sum == 0 {
		return 0
	}
	return float64(slices.Max(shares)) * float64(len(shares)) / float64(sum)
}

// splitSizes are the numbers of primaries on the page.
var splitSizes = [...]int{2, 3, 4, 5, 6, 8, 12, 16, 32} //nolint:gochecknoglobals // a constant

// mostRanges is how many are worth writing down.
const mostRanges = 8

// splitRows are rows of a table of docs/performance/scale.md: how buckets fall on equal shares of the slots, and the last slots of shares
// on which they fall evenly.
func splitRows() []string {
	rows := make([]string, 0, len(splitSizes))
	for _, nodes := range splitSizes {
		plain, even := bucketsIn(plainRanges(nodes)), bucketsIn(evenRanges(nodes))
		ends := "halfway between buckets, as above"
		if nodes <= mostRanges {
			ends = lastSlots(evenRanges(nodes))
		}
		rows = append(rows, fmt.Sprintf("| %d | %s | %.2f | %.2f | %s |", nodes, joined(plain), spread(plain), spread(even), ends))
	}
	return rows
}

func joined(counts []int) string {
	if len(counts) > mostRanges {
		return fmt.Sprintf("%d to %d", slices.Min(counts), slices.Max(counts))
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(counts), "[]"), " ", ", ")
}

func lastSlots(ranges []slotRange) string {
	words := make([]string, 0, len(ranges))
	for _, r := range ranges[:len(ranges)-1] {
		words = append(words, fmt.Sprint(r.last))
	}
	return strings.Join(words, ", ")
}

func printSplits(out io.Writer) {
	fmt.Fprintln(out, "| primaries | buckets on each | most to mean | most to mean, evened | last slots of all but the last primary, evened |")
	for _, row := range splitRows() {
		fmt.Fprintln(out, row)
	}
}
