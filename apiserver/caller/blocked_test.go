package caller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// blockedFixture stands for Redis.
type blockedFixture struct {
	fail    error
	gone    string // a merchant whose server is unavailable; it is alone there
	corrupt string // a merchant
	writes  int
	written map[string]map[string]int64 // by merchant and block
}

func (f *blockedFixture) add(_ context.Context, merchantID string, requests map[string]int64) error {
	if f.fail != nil {
		return f.fail
	}
	if merchantID == f.gone {
		return redis.ErrUnavailable
	}
	if merchantID == f.corrupt {
		return errors.Join(redis.ErrCorrupt)
	}
	f.writes++
	if f.written[merchantID] == nil {
		f.written[merchantID] = map[string]int64{}
	}
	for block, n := range requests {
		f.written[merchantID][block] += n
	}
	return nil
}

// forEach has each bucket at a server of its own.
func (f *blockedFixture) forEach(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error {
	var errs []error
	for _, bucket := range buckets {
		errs = append(errs, do(ctx, bucket))
	}
	return errors.Join(errs...)
}

func newBlockedFixture() (*blockedAddresses, *blockedFixture) {
	f := &blockedFixture{written: map[string]map[string]int64{}}
	b := newBlockedAddresses(nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	b.add, b.forEach = f.add, f.forEach
	return b, f
}

// blockedCaller has a good key, and an address that is not on the list.
func blockedCaller(merchantID string) Caller {
	merchant := &directory.Merchant{ID: merchantID, State: v1alpha1.MerchantActive, Allowlist: allowlist.List{netip.MustParsePrefix("203.0.113.7/32")}}
	return Caller{Principal: directory.Principal{Live: true, Merchant: merchant}, blocked: true}
}

// request counts a request as the handlers do.
func (b *blockedAddresses) request(from Caller, address netip.Addr, err error) {
	b.count(&web.Event{Blocked: from.blockedAddress(address), Err: err})
}

func testAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// Only requests of which the address is the only thing wrong are counted.
func TestBlockedAddresses_OnlyGoodKeys(t *testing.T) {
	b, f := newBlockedFixture()
	good := blockedCaller("acme")
	refused, reported := UnauthorizedError{directory.ReasonAddressNotAllowed}, blockedCaller("acme")
	reported.Merchant.ReportOnly = true
	suspended, listed, unknown := blockedCaller("acme"), blockedCaller("acme"), blockedCaller("acme")
	suspended.Merchant.State, listed.blocked, unknown.Live = v1alpha1.MerchantSuspended, false, false
	for _, from := range []Caller{{}, suspended, listed, unknown} {
		b.request(from, testAddress(1), refused)
	}
	b.request(reported, testAddress(1), fmt.Errorf("admit: %w", admission.ErrKeyRejected)) // just rotated
	if len(b.requests) != 0 {
		t.Errorf("counted %+v", b.requests)
	}
	b.request(good, testAddress(1), refused)
	b.request(reported, testAddress(2), nil)
	b.request(reported, testAddress(1<<8), admission.ErrRateLimited)
	b.flush(t.Context())
	want := map[string]int64{"10.0.0.0/24": 2, "10.0.1.0/24": 1}
	if f.writes != 1 || !maps.Equal(f.written["acme"], want) {
		t.Errorf("written %+v, want %v", f.written, want)
	}
	for mode, want := range map[string]float64{"enforce": 1, "report": 2} {
		if got := testutil.ToFloat64(b.total.WithLabelValues(mode)); got != want {
			t.Errorf("%v in the mode %s, want %v", got, mode, want)
		}
	}
}

// What only the list of the key blocks is counted apart from what that of its merchant blocks.
func TestBlockedAddresses_ListOfTheKey(t *testing.T) {
	b, f := newBlockedFixture()
	from := blockedCaller("acme") // allowed from 203.0.113.7
	from.KeyID, from.Principal.Allowlist = "abcdefgh2345", allowlist.List{netip.MustParsePrefix("192.0.2.1/32")}
	refused := UnauthorizedError{directory.ReasonAddressNotAllowed}
	b.request(from, netip.MustParseAddr("203.0.113.7"), refused)
	b.request(from, netip.MustParseAddr("198.51.100.7"), refused) // on neither list
	b.flush(t.Context())
	want := map[string]int64{"203.0.113.0/24 key:abcdefgh2345": 1, "198.51.100.0/24": 1}
	if !maps.Equal(f.written["acme"], want) {
		t.Errorf("written %+v, want %v", f.written, want)
	}
}

// From however many addresses somebody comes, and with however many merchants' keys, a replica keeps and writes little, and counts all.
func TestBlockedAddresses_Bounds(t *testing.T) {
	b, f := newBlockedFixture()
	const requests = 100_000
	for i := range requests {
		b.request(blockedCaller("acme"), testAddress(i<<8), nil)
	}
	for i := range 2 * maxBlockedMerchants {
		b.request(blockedCaller(fmt.Sprint("merchant ", i)), testAddress(i), nil)
	}
	if n := len(b.requests); n != maxBlockedMerchants {
		t.Errorf("%d merchants are counted, want %d", n, maxBlockedMerchants)
	}
	f.fail = fmt.Errorf("%w: full", redis.ErrUnavailable)
	b.flush(t.Context())
	f.fail = nil
	b.flush(t.Context())
	var sum int64
	for _, n := range f.written["acme"] {
		sum += n
	}
	if f.writes != maxBlockedMerchants || len(f.written["acme"]) > maxBlocks+1 || sum != requests {
		t.Errorf("%d writes, %d blocks of one merchant, %d requests", f.writes, len(f.written["acme"]), sum)
	}
	b.flush(t.Context())
	if len(b.requests) != 0 || f.writes != maxBlockedMerchants {
		t.Errorf("without requests: %d merchants are counted, %d writes", len(b.requests), f.writes)
	}
}

// What Redis does not take is added later, and one merchant whose counts it cannot take does not keep those of others.
func TestBlockedAddresses_Retry(t *testing.T) {
	b, f := newBlockedFixture()
	count := func() {
		for _, id := range []string{"a", "b", "corrupt", "c", "d"} {
			b.request(blockedCaller(id), testAddress(1), nil)
		}
	}
	count()
	f.fail = fmt.Errorf("%w: full", redis.ErrUnavailable)
	b.flush(t.Context())
	count()
	f.fail, f.corrupt = nil, "corrupt"
	b.flush(t.Context())
	if f.writes != 4 || f.written["d"]["10.0.0.0/24"] != 2 {
		t.Errorf("%d are written, want 4: %v", f.writes, f.written)
	}
	f.corrupt = ""
	b.flush(t.Context())
	if f.written["corrupt"]["10.0.0.0/24"] != 2 {
		t.Errorf("written %v", f.written)
	}
}

func BenchmarkCountBlocked(b *testing.B) {
	counts, _ := newBlockedFixture()
	from, i := blockedCaller("acme"), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		counts.request(from, testAddress(i<<8), nil)
	}
}

// A primary of a Redis Cluster that is gone keeps back the counts of its own merchants only.
func TestBlockedAddresses_OtherServerIsGone(t *testing.T) {
	b, f := newBlockedFixture()
	f.gone = "a"
	for _, id := range []string{"a", "b", "c", "d"} {
		b.request(blockedCaller(id), testAddress(1), nil)
	}
	b.flush(t.Context())
	if len(f.written) != 3 || len(b.requests) != 1 {
		t.Errorf("written %v, kept %v; want to keep a's only", f.written, b.requests)
	}
}
