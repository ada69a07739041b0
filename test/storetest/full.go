package storetest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// FullCase is an operation that meets a Redis at maxmemory.
type FullCase struct {
	Name string
	// Options of the store and of the client, if the case needs others.
	Store store.Options
	Redis func(*redis.Options)
	// Arrange writes what the operation finds, while Redis has room, and returns the operation.
	Arrange func(t *testing.T, s *Services, asks admission.Request) func() error
	// Drains: the operation takes something out of Redis, or is needed for that, so it succeeds.
	Drains bool
}

// CheckFull runs each case twice on the same data, first with room and then at maxmemory, and fails unless the second run leaves all that
// the first one left, or nothing. The cases must run every script of the test's package. The server is emptied for each.
func CheckFull(t *testing.T, server *redistest.Server, cases []FullCase) {
	t.Helper()
	c := Inspect(t, server)
	ran := map[string]bool{}
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) { one.check(t, server, c, ran) })
	}
	files, err := filepath.Glob("*.lua")
	Must(t, err)
	for _, file := range files {
		if operation := strings.TrimSuffix(file, ".lua"); !ran[operation] {
			t.Errorf("no case runs %s while Redis is full", operation)
		}
	}
}

func (f FullCase) check(t *testing.T, server *redistest.Server, c *goredis.Client, ran map[string]bool) {
	t.Helper()
	asks := Merchant()
	run := func(maxmemory string) (before, after []string, err error) {
		Must(t, c.FlushAll(t.Context()).Err())
		registry := prometheus.NewRegistry()
		s := New(t, server.URL(), func(o *redis.Options) {
			o.Registerer = registry
			if f.Redis != nil {
				f.Redis(o)
			}
		})
		s.reopen(t, f.Store)
		operation := f.Arrange(t, s, asks)
		before = snapshot(t, c, asks)
		earlier := runs(t, registry)
		Must(t, c.ConfigSet(t.Context(), "maxmemory", maxmemory).Err())
		err = operation()
		Must(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
		for name, count := range runs(t, registry) {
			if count > earlier[name] {
				ran[name] = true
			}
		}
		return before, snapshot(t, c, asks), err
	}
	arranged, whole, wanted := run("0")
	before, after, err := run("1")
	if diff := cmp.Diff(arranged, before); diff != "" {
		t.Fatalf("the case does not arrange the same twice:\n%s", diff)
	}
	missing := cmp.Diff(whole, after)
	switch {
	case missing != "" && !slices.Equal(before, after):
		t.Errorf("a part was applied (-with room +full):\n%s", missing)
	case missing != "" && err == nil:
		t.Errorf("it succeeded, and nothing was applied (-with room +full):\n%s", missing)
	}
	if f.Drains && (missing != "" || fmt.Sprint(err) != fmt.Sprint(wanted)) {
		t.Errorf("a full Redis refuses what would empty it: %v", err)
	}
}

// runs returns how often each operation ran.
func runs(t *testing.T, registry *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	Must(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if histogram := metric.GetHistogram(); histogram != nil {
				counts[metric.GetLabel()[0].GetValue()] = histogram.GetSampleCount()
			}
		}
	}
	return counts
}

// What differs from run to run: the clock, and the random end of the tokens of leases and of the names of holders, and digests of session ids.
var (
	clockText = regexp.MustCompile(`\d{10,}(\.\d+)?(-\d+)?`)
	tokenText = regexp.MustCompile(`:[A-Z2-7]{8}$`)
	// refundText is the id of a request for a refund, which names its session as well, and that of its events.
	refundText = regexp.MustCompile(`rf_[0-9a-f]{24}|(asked|rejected|refund)_[0-9a-f]{16}`)
)

// snapshot returns all that Redis holds of the merchant's bucket, a line for each entry, without what differs from run to run. Entries of the limiter are left
// out: they end within a second.
func snapshot(t *testing.T, c *goredis.Client, asks admission.Request) []string {
	t.Helper()
	ctx := t.Context()
	keys, err := c.Keys(ctx, "*").Result()
	Must(t, err)
	var lines []string
	for _, key := range keys {
		ofOther := strings.Contains(key, ":used:") && !strings.HasSuffix(key, asks.KeyID)
		if !strings.HasPrefix(key, Tag(asks.MerchantID)) || ofOther || strings.Contains(key, ":rate:") {
			continue
		}
		kind, ttl := c.Type(ctx, key).Val(), c.PTTL(ctx, key).Val()
		lines = append(lines, fmt.Sprintf("%s %s ends=%t", key, kind, ttl > 0))
		for _, words := range entries(t, c, key, kind) {
			lines = append(lines, key+" "+tokenText.ReplaceAllString(strings.Join(words, " "), ""))
		}
	}
	random := map[string]bool{}
	for _, found := range regexp.MustCompile(asks.MerchantID+"([0-9A-Za-z]{18})").FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
		random[found[1]] = true
	}
	for i := range lines {
		for text := range random {
			lines[i] = strings.ReplaceAll(lines[i], text, "RANDOM")
		}
		lines[i] = clockText.ReplaceAllString(refundText.ReplaceAllString(lines[i], "REFUND"), "CLOCK")
	}
	slices.Sort(lines)
	return lines
}

// entries returns the words of each entry of a key.
func entries(t *testing.T, c *goredis.Client, key, kind string) (all [][]string) {
	t.Helper()
	ctx := t.Context()
	switch kind {
	case "string":
		all = append(all, []string{c.Get(ctx, key).Val()})
	case "list":
		all = append(all, c.LRange(ctx, key, 0, -1).Val())
	case "hash":
		for name, value := range c.HGetAll(ctx, key).Val() {
			if strings.HasPrefix(name, "h:") {
				value = "for so many milliseconds"
			}
			all = append(all, []string{name, value})
		}
	case "zset":
		for _, entry := range c.ZRangeWithScores(ctx, key, 0, -1).Val() {
			all = append(all, []string{strconv.FormatFloat(entry.Score, 'f', -1, 64), fmt.Sprint(entry.Member)})
		}
	case "stream":
		for _, entry := range c.XRange(ctx, key, "-", "+").Val() {
			all = append(all, []string{entry.ID, fmt.Sprint(entry.Values)})
		}
	default:
		t.Fatalf("%s is a %s", key, kind)
	}
	return all
}
