package main

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/naive"
)

// keptKey is a key of Redis that outlives renew.
type keptKey struct {
	dump string
	ttl  time.Duration
}

// keep remembers what is in Redis now.
func (s *stand) keep(ctx context.Context) error {
	s.kept = map[string]keptKey{}
	keys, err := s.client.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		ttl, err := s.client.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		dump, err := s.client.Dump(ctx, key).Result()
		if err != nil {
			continue // its time is over
		}
		s.kept[key] = keptKey{dump, max(ttl, 0)}
	}
	return nil
}

// renew leaves in Redis what was kept, and nothing else, so that each measurement finds the same.
func (s *stand) renew(ctx context.Context) error {
	if err := s.client.Do(ctx, "FLUSHALL", "SYNC").Err(); err != nil {
		return err
	}
	for key, kept := range s.kept {
		if err := s.client.Restore(ctx, key, kept.ttl, kept.dump).Err(); err != nil {
			return err
		}
	}
	if err := naive.Register(ctx, s.client, s.key, "naive", merchantName); err != nil {
		return err
	}
	return s.client.ConfigResetStat(ctx).Err()
}
