package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestCallersDoNotShareALimit(t *testing.T) {
	s := open(t, shared.URL())
	one := ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}
	id := mustCreate(t, s, merchant(), newSession()).Session.ID
	for range 3 {
		if _, err := s.Admit(t.Context(), limited(one)); err != nil {
			t.Errorf("another merchant: %v", err)
		}
		reader := with(payer(), func(p *store.PublicAdmission) { p.Limit = one })
		if _, _, err := s.PublicSession(t.Context(), reader, id); err != nil {
			t.Errorf("another payer: %v", err)
		}
	}
}

func TestAllKeysOfAMerchantShareItsLimit(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
	second := with(asks, func(a *store.Admission) { a.KeyID, a.Digest = newID(), newDigest() })
	eventually(t, "what one key spends, the other lacks", func() bool {
		if _, err := s.Admit(t.Context(), asks); err != nil && !errors.Is(err, store.ErrRateLimited) {
			t.Fatal(err)
		}
		_, err := s.Admit(t.Context(), second)
		return errors.Is(err, store.ErrRateLimited)
	})
}

func TestPublicReadsAreLimitedBeforeTheSessionIsLookedUp(t *testing.T) {
	s := open(t, shared.URL())
	created := mustCreate(t, s, merchant(), newSession())
	for desc, id := range map[string]session.ID{
		"a session":               created.Session.ID,
		"one that does not exist": session.NewID(created.Session.ID.MerchantID(), false),
	} {
		asks := with(payer(), func(p *store.PublicAdmission) { p.Limit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 5} })
		passed := 0
		eventually(t, desc+" is over the limit", func() bool {
			quota, read, err := s.PublicSession(t.Context(), asks, id)
			if err == nil || errors.Is(err, store.ErrNotFound) {
				passed++
				return false
			}
			if !errors.Is(err, store.ErrRateLimited) || read != (store.PublicSession{}) ||
				quota.Remaining != 0 || quota.RetryAfter <= 0 || quota.RetryAfter > time.Second {
				t.Fatalf("%s: %+v, %+v, %v; want ErrRateLimited", desc, quota, read, err)
			}
			return true
		})
		if passed < 5 {
			t.Errorf("%s: %d reads of a burst of 5 passed", desc, passed)
		}
	}
}

// A lowered limit, or a failover to a server whose clock is behind, leaves a debt that is larger than a
// burst. It must not lock the merchant out for longer than one burst takes.
func TestADebtBeyondABurstIsForgiven(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 100, Burst: 3})
	key := bucketTag(asks.MerchantID) + "rate:" + asks.MerchantID
	now, err := s.Admit(t.Context(), merchant())
	if err != nil {
		t.Fatal(err)
	}
	client(t, shared).Set(t.Context(), key, now.Now.Add(time.Hour).UnixMicro(), time.Hour)

	refused, err := s.Admit(t.Context(), asks)
	if !errors.Is(err, store.ErrRateLimited) || refused.RetryAfter != 10*time.Millisecond || refused.Reset != 30*time.Millisecond {
		t.Errorf("%+v, %v; want ErrRateLimited with one interval to wait", refused.Quota, err)
	}
	eventually(t, "the merchant passes again", func() bool {
		_, err := s.Admit(t.Context(), asks)
		return err == nil
	})
}
