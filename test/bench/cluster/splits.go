package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// splitSizes are the numbers of primaries that the page tells of.
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
