package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

const unlimitedRate = 1_000_000

// charged is a session that is pending, and its merchant.
type charged struct {
	merchantID string
	id         session.ID
}

// create makes pending sessions, of each merchant in turn.
func (s *stand) create(ctx context.Context, count int) ([]charged, error) {
	sessions := make([]charged, count)
	err := each(ctx, count, func(i int) error {
		merchantID := s.merchants[i%len(s.merchants)]
		_, created, err := s.store.CreateSession(ctx, admission(merchantID), store.NewSession{
			MerchantName: merchantName, Charge: session.Charge{AmountCents: 1250, OrderRef: fmt.Sprintf("order-%06d", i)},
			Lifetime: 24 * time.Hour,
		})
		sessions[i] = charged{merchantID, created.Session.ID}
		return err
	})
	return sessions, err
}

// cancel ends the sessions, which makes an event of each.
func (s *stand) cancel(ctx context.Context, sessions []charged) error {
	return each(ctx, len(sessions), func(i int) error { return s.cancelOne(ctx, sessions[i]) })
}

func (s *stand) cancelOne(ctx context.Context, one charged) error {
	_, _, err := s.store.Cancel(ctx, admission(one.merchantID), one.id)
	return err
}

func admission(merchantID string) store.Admission {
	return store.Admission{
		MerchantID: merchantID, KeyID: "till", Digest: apikey.DigestOf("key"), Live: true,
		Limit: ratelimit.Policy{RequestsPerSecond: unlimitedRate, Burst: unlimitedRate},
	}
}

// each does something count times, some at a time, until one fails; that is the error.
func each(ctx context.Context, count int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const atATime = 64
	var next atomic.Int64
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
