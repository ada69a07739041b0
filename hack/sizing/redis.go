package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// entry is something that Redis keeps.
type entry struct {
	what  string
	write func(ctx context.Context, s *store.Store, i int) error
	// then is done when all are written; nil: nothing.
	then func(ctx context.Context, s *store.Store) error
}

// The merchants that the sessions belong to. Fewer than sessions, as in life, and enough to fill all buckets.
const tills = 1000

var entries = []entry{
	{what: "a pending session", write: func(ctx context.Context, s *store.Store, i int) error {
		_, err := create(ctx, s, i, session.IdempotencyKey{})
		return err
	}},
	{what: "a pending session and its Idempotency-Key", write: func(ctx context.Context, s *store.Store, i int) error {
		_, err := createOnce(ctx, s, i)
		return err
	}},
	{what: "a settled session, its Idempotency-Key and its undelivered event", write: charge},
	{what: "a settled session and its Idempotency-Key", write: charge, then: deliverAll},
	{what: "the override of a key", write: func(ctx context.Context, s *store.Store, i int) error {
		id := published.ID(types.UID("key-" + strconv.Itoa(i)))
		key, err := apikey.New(id)
		if err != nil {
			return err
		}
		return s.WriteOverride(ctx, store.Override{
			KeyRef:   store.KeyRef{MerchantID: merchantID(i), KeyID: id},
			Order:    published.Order{Issued: 1_795_253_496_000, Revision: 1_795_253_496_000},
			Accepted: []store.Accepted{{Digest: key.Digest()}},
		})
	}},
}

// charge is what becomes of most sessions.
func charge(ctx context.Context, s *store.Store, i int) error {
	id, err := createOnce(ctx, s, i)
	if err != nil {
		return err
	}
	_, err = s.Settle(ctx, id, session.Payment{
		Ref: "card-" + strconv.Itoa(10_000_000+i), Outcome: session.Completed, AmountCents: 1250, PaidAt: time.Now(),
	})
	return err
}

// deliverAll ends all events as if they had been delivered.
func deliverAll(ctx context.Context, s *store.Store) error {
	return each(ctx, session.Buckets, func(ctx context.Context, i int) error {
		for {
			leased, err := s.LeaseEvents(ctx, session.Bucket(i), store.LeaseRequest{For: time.Minute, Limit: 100})
			if err != nil || len(leased.Leases) == 0 {
				return err
			}
			for _, lease := range leased.Leases {
				if err := s.EventDelivered(ctx, lease); err != nil {
					return err
				}
			}
		}
	})
}

func createOnce(ctx context.Context, s *store.Store, i int) (session.ID, error) {
	key, err := session.ParseIdempotencyKey("order-" + strconv.Itoa(i))
	if err != nil {
		return session.ID{}, err
	}
	return create(ctx, s, i, key)
}

func create(ctx context.Context, s *store.Store, i int, key session.IdempotencyKey) (session.ID, error) {
	id := merchantID(i)
	apiKey := published.ID(types.UID("key-of-" + id))
	_, created, err := s.CreateSession(ctx, store.Admission{
		MerchantID: id, KeyID: apiKey, Live: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 1_000_000, Burst: 1_000_000},
	}, store.NewSession{
		MerchantName: "Acme Coffee", Lifetime: 15 * time.Minute, Idempotency: key,
		Charge: session.Charge{AmountCents: 1250, OrderRef: strconv.Itoa(10_000_000 + i)},
	})
	return created.Session.ID, err
}

func merchantID(i int) string {
	return published.ID(types.UID("merchant-" + strconv.Itoa(i%tills)))
}

// measureRedis fills a Redis of its own with each kind of entry.
func measureRedis(ctx context.Context, count int) error {
	fmt.Printf("Bytes of Redis for each of %d:\n", count)
	for _, one := range entries {
		size, err := measureEntry(ctx, one, count)
		if err != nil {
			return fmt.Errorf("%s: %w", one.what, err)
		}
		fmt.Printf("%6d  %s\n", size, one.what)
	}
	return nil
}

func measureEntry(ctx context.Context, one entry, count int) (int, error) {
	server, stop, err := redistest.New() //nolint:contextcheck // it is stopped below, whatever becomes of the context
	if err != nil {
		return 0, err
	}
	defer stop()
	s, err := store.Open(store.Options{URL: server.URL(), Timeout: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	before, err := usedMemory(ctx, server.Addr())
	if err != nil {
		return 0, err
	}
	if err := each(ctx, count, func(ctx context.Context, i int) error { return one.write(ctx, s, i) }); err != nil {
		return 0, err
	}
	if one.then != nil {
		if err := one.then(ctx, s); err != nil {
			return 0, err
		}
	}
	after, err := usedMemory(ctx, server.Addr())
	return (after - before) / count, err
}
