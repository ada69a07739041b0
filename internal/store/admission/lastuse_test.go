package admission_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const interval = 10 * time.Minute

// What Redis holds of a digest's last use must never be older than the interval, however often intervals change.
func TestLastUses_OnceInTenMinutes(t *testing.T) {
	uses, now := admission.NewUseMemory(), time.Unix(1_800_000_000, 0)
	key, rejected := newDigest(), newDigest()
	var written time.Time
	writes := 0
	for range 1000 {
		if uses.Due(key, now) {
			uses.MarkWritten(key)
			written = now
			writes++
		}
		if !uses.Due(rejected, now) {
			t.Fatal("asking alone takes the use for written")
		}
		if now.Sub(written) > interval {
			t.Fatalf("at %s the last use is that of %s ago", now, now.Sub(written))
		}
		now = now.Add(7 * time.Second)
	}
	if writes > 12 { // 7,000 s
		t.Errorf("%d writes in 7,000 s", writes)
	}
}

// Digests that are not used any more are forgotten.
func TestLastUses_Forgotten(t *testing.T) {
	uses, now := admission.NewUseMemory(), time.Unix(1_800_000_000, 0)
	first := newDigest()
	uses.Due(first, now)
	uses.MarkWritten(first)
	uses.Due(newDigest(), now.Add(interval))
	if n := uses.Remembered(); n != 0 {
		t.Errorf("%d digests are remembered", n)
	}
}

// Each digest of an ApiKey has its own last use, in the first request of this replica and then every ten minutes.
func TestAdmit_LastUseOfEachDigest(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	old := asks
	old.Digest = newDigest()
	admit := func(a admission.Request) time.Time {
		t.Helper()
		admitted, err := s.Admit(t.Context(), a)
		must(t, err)
		return admitted.Now.Truncate(time.Second)
	}
	oldUse, use := admit(old), admit(asks)
	uses, _ := lastUses(t, s, asks, time.Time{})
	if !uses.Last(old.Digest).Equal(oldUse) || !uses.Last(asks.Digest).Equal(use) {
		t.Errorf("uses %q, want one of each digest at %s and %s", uses, oldUse, use)
	}

	// In its interval a replica does not write again, whatever Redis holds; another one does.
	key := merchantTag(asks.MerchantID) + "used:" + asks.KeyID
	must(t, c.Set(t.Context(), key, published.DigestTag(old.Digest)+" 1800000000", 0).Err())
	admit(old)
	admit(asks)
	if got := c.Get(t.Context(), key).Val(); got != published.DigestTag(old.Digest)+" 1800000000" {
		t.Errorf("within the interval %q was written", got)
	}
	s = open(t, server.URL())
	use = admit(asks)
	uses, _ = lastUses(t, s, asks, time.Time{})
	if uses.Last(old.Digest).Unix() != 1_800_000_000 || !uses.Last(asks.Digest).Equal(use) {
		t.Errorf("another replica wrote %q", uses)
	}

}

// A key that is accepted is used, whatever else rejects the request: the merchant may be active again before the overlap ends. A key that
// is not accepted is not used.
func TestAdmit_LastUseOfRejectedRequests(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	admit := func(s *services, a admission.Request) error {
		_, err := s.Admit(t.Context(), a)
		return err
	}
	create := func(s *services, a admission.Request) error {
		_, _, err := s.CreateSession(t.Context(), a, newSession())
		return err
	}
	rotate := func(s *services, a admission.Request) error {
		_, err := s.AdmitRotation(t.Context(), a, a.Limit)
		return err
	}
	dead := with(merchant(), func(a *admission.Request) { a.Accepted = false })
	inactive := with(merchant(), func(a *admission.Request) { a.Inactive = true })
	forbidden := with(merchant(), func(a *admission.Request) { a.Forbidden = true })
	for name, test := range map[string]struct {
		asks    admission.Request
		request func(*services, admission.Request) error
		want    error
		used    bool
	}{
		"a dead key":         {dead, admit, admission.ErrKeyRejected, false},
		"inactive merchant":  {inactive, admit, admission.ErrMerchantNotActive, true},
		"no charge for it":   {inactive, create, admission.ErrMerchantNotActive, true},
		"no permission":      {forbidden, admit, admission.ErrForbidden, true},
		"over the limit":     {merchant(), admit, admission.ErrRateLimited, true},
		"too many rotations": {merchant(), rotate, admission.ErrRotationLimited, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, tag := open(t, server.URL()), merchantTag(test.asks.MerchantID)
			request := func() published.DigestUses {
				t.Helper()
				for _, limit := range []string{"rate:" + test.asks.MerchantID, "rate:rotations:" + test.asks.KeyID} {
					must(t, c.Set(t.Context(), tag+limit, "9000000000000000", 0).Err()) // far beyond a burst
				}
				if err := test.request(s, test.asks); !errors.Is(err, test.want) {
					t.Fatalf("%v, want %v", err, test.want)
				}
				uses, _ := lastUses(t, s, test.asks, time.Time{})
				return uses
			}
			if uses := request(); uses.Last(test.asks.Digest).IsZero() == test.used {
				t.Errorf("uses %q; used: %v", uses, test.used)
			}
			must(t, c.Del(t.Context(), tag+"used:"+test.asks.KeyID).Err())
			if uses := request(); uses != "" {
				t.Errorf("within the interval %q was written again", uses)
			}
		})
	}
}

// Constant rotation does not fill memory: only the latest digests stay.
func TestAdmit_LastUsesAreBounded(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	var digests []apikey.Digest
	for range published.MaxDigestUses + 5 {
		asks.Digest = newDigest()
		digests = append(digests, asks.Digest)
		_, err := s.Admit(t.Context(), asks)
		must(t, err)
	}
	uses, _ := lastUses(t, s, asks, time.Time{})
	if n := len(strings.Fields(string(uses))) / 2; n != published.MaxDigestUses || uses.CompleteSince().IsZero() {
		t.Errorf("%d digests are kept, want %d", n, published.MaxDigestUses)
	}
	for _, digest := range digests[5:] {
		if uses.Last(digest).IsZero() {
			t.Errorf("%q has no %s, which is one of the latest", uses, published.DigestTag(digest))
		}
	}
}

// merchant/me has the use before it, of any key of the ApiKey.
func TestAdmit_LastUsedAt(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	first, err := s.Admit(t.Context(), asks)
	if err != nil || !first.LastUsedAt.IsZero() {
		t.Fatalf("the first use: %+v, %v", first, err)
	}
	asks.Digest = newDigest()
	second, err := s.Admit(t.Context(), asks)
	if err != nil || !second.LastUsedAt.Equal(first.Now.Truncate(time.Second)) {
		t.Errorf("the second use returns %s, want %s: %v", second.LastUsedAt, first.Now, err)
	}
}

// After Redis was away, a replica does not rely on what it wrote before: a failover may have lost it.
func TestAdmit_LastUseAfterAnOutage(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *redis.Options) { o.Timeout = time.Second })
	c, asks := client(t, server), merchant()
	_, err := s.Admit(t.Context(), asks)
	must(t, err)
	must(t, c.Del(t.Context(), merchantTag(asks.MerchantID)+"used:"+asks.KeyID).Err()) // the write is lost
	server.Pause()
	if _, err := s.Admit(t.Context(), asks); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("a frozen Redis: %v", err)
	}
	server.Resume()
	eventually(t, "the use is written again", func() bool {
		_, _ = s.Admit(t.Context(), asks)
		uses, _ := lastUses(t, s, asks, time.Time{})
		return !uses.Last(asks.Digest).IsZero()
	})
}
