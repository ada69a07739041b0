package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// moves are buckets that went to another server while merchants charged.
type moves struct {
	Buckets int           `json:"buckets"`
	Slots   int           `json:"slots"`
	Keys    int64         `json:"keys"`
	Took    time.Duration `json:"tookNanoseconds"`
	During  verdict       `json:"during"` // what callers saw
	After   verdict       `json:"after"`
}

// even moves buckets until no primary has more than one more than another, while every merchant charges, reads and cancels.
func (s *side) even(ctx context.Context, merchants []merchant) (moves, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var m moves
	moving := make(chan error, 1)
	go func() { moving <- s.moveUntilEven(ctx, &m) }()
	for round := 0; ; round++ {
		m.During.add(s.caller.check(ctx, merchants, fmt.Sprintf("moving-%d", round)))
		select {
		case err := <-moving:
			if err == nil {
				m.After = s.caller.check(ctx, merchants, "moved")
			}
			return m, err
		default:
		}
	}
}

// moveUntilEven moves the lowest bucket of the primary with most to the one with least, again and again.
func (s *side) moveUntilEven(ctx context.Context, m *moves) error {
	started := time.Now()
	for {
		held, err := s.held(ctx)
		if err != nil {
			return err
		}
		from, to := fullest(held)
		if len(held[from].buckets) < len(held[to].buckets)+2 {
			m.Took = time.Since(started)
			return nil
		}
		next := held[from].buckets[0]
		keys, err := s.nodes[from].client.ClusterCountKeysInSlot(ctx, next).Result()
		if err != nil {
			return err
		}
		count := 1 + slices.Index(held[from].slots, next)
		if err := moveSlots(ctx, s.nodes[from], s.nodes[to], count); err != nil {
			return err
		}
		if err := settled(ctx, s.nodes); err != nil {
			return err
		}
		m.Buckets, m.Slots, m.Keys = m.Buckets+1, m.Slots+count, m.Keys+keys
	}
}

// holding is what a primary has, in the order of the slots.
type holding struct{ slots, buckets []int }

func (s *side) held(ctx context.Context) ([]holding, error) {
	parts, err := s.nodes[0].shards(ctx)
	if err != nil {
		return nil, err
	}
	taken := bucketSlots()
	held := make([]holding, len(s.nodes))
	for i, n := range s.nodes {
		for _, r := range parts[n.server.Addr()] {
			for slot := r.first; slot <= r.last; slot++ {
				held[i].slots = append(held[i].slots, slot)
				if slices.Contains(taken, slot) {
					held[i].buckets = append(held[i].buckets, slot)
				}
			}
		}
	}
	for _, h := range held {
		slices.Sort(h.slots)
		slices.Sort(h.buckets)
	}
	return held, nil
}

// fullest returns which primary has most buckets, and which least.
func fullest(held []holding) (most, least int) {
	for i, h := range held {
		if len(h.buckets) > len(held[most].buckets) {
			most = i
		}
		if len(h.buckets) < len(held[least].buckets) {
			least = i
		}
	}
	return most, least
}
