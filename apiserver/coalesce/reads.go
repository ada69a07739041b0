// Package coalesce lets many requests share one read.
package coalesce

import (
	"context"
	"sync"
	"time"
)

// Interval is between two shared reads about one key.
const Interval = 100 * time.Millisecond

// Reads are reads about keys: one every Interval for all requests that wait, however many there are.
type Reads[T any] struct {
	mu   sync.Mutex
	next map[string]*read[T] // those that have not started yet, by key
}

// read is one read for all waiting requests. Its result is valid once done is closed.
type read[T any] struct {
	done   chan struct{}
	result T
	err    error
}

// NewReads returns Reads without any.
func NewReads[T any]() *Reads[T] {
	return &Reads[T]{next: map[string]*read[T]{}}
}

// Join waits for a read that starts later, so that it finds everything written before. The read goes on when a caller leaves; then the
// error is that of ctx.
func (s *Reads[T]) Join(ctx context.Context, key string, do func(context.Context) (T, error)) (T, error) {
	shared := s.prepare(context.WithoutCancel(ctx), key, do)
	select {
	case <-shared.done:
		return shared.result, shared.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *Reads[T]) prepare(ctx context.Context, key string, do func(context.Context) (T, error)) *read[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.next[key]
	if shared == nil {
		shared = &read[T]{done: make(chan struct{})}
		s.next[key] = shared
		go func() {
			defer close(shared.done)
			<-time.After(Interval)
			s.mu.Lock()
			delete(s.next, key)
			s.mu.Unlock()
			shared.result, shared.err = do(ctx)
		}()
	}
	return shared
}
