package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// writtenRefusals stands for Redis, which keeps the blocks that are named.
type writtenRefusals struct {
	kept    []netip.Prefix
	fail    error
	written []store.Refusals
}

func (w *writtenRefusals) write(_ context.Context, refusals store.Refusals) ([]netip.Prefix, error) {
	if w.fail != nil {
		return nil, w.fail
	}
	w.written = append(w.written, refusals)
	return w.kept, nil
}

// sum counts all requests that were written.
func (w *writtenRefusals) sum() (n int64) {
	for _, refusals := range w.written {
		n += refusals.Others
		for _, count := range refusals.Blocks {
			n += count
		}
	}
	return n
}

func newCounts() (*allowlistRefusals, *writtenRefusals) {
	w := &writtenRefusals{}
	r := newAllowlistRefusals(nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	r.write = w.write
	return r, w
}

// unlistedCaller has a good key, and an address that is not on the list.
func unlistedCaller(merchantID string) caller {
	return caller{Principal: directory.Principal{Live: true, Merchant: &directory.Merchant{ID: merchantID, State: v1alpha1.MerchantActive}}, unlisted: true}
}

func addressOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// Only requests of which the address is the only thing wrong are counted.
func TestOnlyGoodKeysAreCounted(t *testing.T) {
	r, w := newCounts()
	good := unlistedCaller("acme")
	refused, reported := unauthorizedError{reasonAddressNotAllowed}, unlistedCaller("acme")
	reported.Merchant.ReportOnly = true
	suspended, listed, unknown := unlistedCaller("acme"), unlistedCaller("acme"), unlistedCaller("acme")
	suspended.Merchant.State, listed.unlisted, unknown.Live = v1alpha1.MerchantSuspended, false, false
	for _, from := range []caller{{}, suspended, listed, unknown} {
		r.count(from, addressOf(1), refused)
	}
	r.count(reported, addressOf(1), fmt.Errorf("admit: %w", store.ErrKeyRejected)) // rotated a moment ago
	if len(r.merchants) != 0 {
		t.Errorf("counted %+v", r.merchants)
	}
	r.count(good, addressOf(1), refused)
	r.count(reported, addressOf(2), nil)
	r.count(reported, addressOf(1<<8), store.ErrRateLimited)
	r.flush(t.Context())
	want := map[netip.Prefix]int64{netip.MustParsePrefix("10.0.0.0/24"): 2, netip.MustParsePrefix("10.0.1.0/24"): 1}
	if len(w.written) != 1 || !maps.Equal(w.written[0].Blocks, want) || w.written[0].Others != 0 {
		t.Errorf("written %+v, want %v", w.written, want)
	}
	for mode, want := range map[string]float64{"enforce": 1, "report": 2} {
		if got := testutil.ToFloat64(r.total.WithLabelValues(mode)); got != want {
			t.Errorf("%v in the mode %s, want %v", got, mode, want)
		}
	}
}

// From however many addresses somebody comes, and with however many merchants' keys, a replica keeps and writes little.
func TestCountsAreBounded(t *testing.T) {
	r, w := newCounts()
	const requests = 100_000
	for i := range requests {
		r.count(unlistedCaller("acme"), addressOf(i<<8), nil)
	}
	for i := range 2 * maxRefusedMerchants {
		r.count(unlistedCaller(fmt.Sprint("merchant ", i)), addressOf(i), nil)
	}
	if n := len(r.merchants); n != maxRefusedMerchants {
		t.Errorf("%d merchants are counted, want %d", n, maxRefusedMerchants)
	}
	r.flush(t.Context())
	acme := slices.IndexFunc(w.written, func(refusals store.Refusals) bool { return refusals.MerchantID == "acme" })
	if len(w.written) != maxRefusedMerchants || len(w.written[acme].Blocks) != store.MaxRefusedBlocks || w.sum() != requests+maxRefusedMerchants-1 {
		t.Errorf("%d writes, %d blocks, %d requests", len(w.written), len(w.written[acme].Blocks), w.sum())
	}
	r.flush(t.Context())
	if len(r.merchants) != 0 || len(w.written) != maxRefusedMerchants {
		t.Errorf("without requests: %d merchants are counted, %d writes", len(r.merchants), len(w.written))
	}
}

// A block that Redis keeps is counted exactly, however many others there are.
func TestKeptBlocksAreCountedExactly(t *testing.T) {
	r, w := newCounts()
	till := netip.MustParsePrefix("203.0.113.0/24")
	w.kept = []netip.Prefix{till}
	r.count(unlistedCaller("acme"), till.Addr(), nil)
	r.flush(t.Context())
	r.count(unlistedCaller("acme"), till.Addr(), nil)
	const others = 1000
	for i := range others {
		r.count(unlistedCaller("acme"), addressOf(i<<8), nil)
	}
	w.fail = fmt.Errorf("%w: full", redis.ErrUnavailable)
	r.flush(t.Context())
	w.fail = nil
	r.count(unlistedCaller("acme"), till.Addr(), nil)
	r.flush(t.Context())
	if last := w.written[len(w.written)-1]; last.Blocks[till] != 2 || len(last.Blocks) != 1+store.MaxRefusedBlocks || w.sum() != others+3 {
		t.Errorf("%d requests are written, the last are %+v", w.sum(), last)
	}
}

// One merchant whose counts Redis cannot take does not keep those of others.
func TestCountsOfOthersAreWritten(t *testing.T) {
	r, w := newCounts()
	r.write = func(ctx context.Context, refusals store.Refusals) ([]netip.Prefix, error) {
		if refusals.MerchantID == "corrupt" {
			return nil, errors.Join(redis.ErrCorrupt)
		}
		return w.write(ctx, refusals)
	}
	for _, id := range []string{"a", "b", "corrupt", "c", "d"} {
		r.count(unlistedCaller(id), addressOf(1), nil)
	}
	r.flush(t.Context())
	if len(w.written) != 4 {
		t.Errorf("%d are written, want 4", len(w.written))
	}
}

func BenchmarkCountRefusal(b *testing.B) {
	r, _ := newCounts()
	from, i := unlistedCaller("acme"), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		r.count(from, addressOf(i<<8), nil)
	}
}
