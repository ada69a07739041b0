package apiserver

import (
	"context"
	"sync"
	"time"
)

// sharedReadInterval is between two shared reads about one key id.
const sharedReadInterval = 100 * time.Millisecond

// sharedReads are reads about key ids: one every sharedReadInterval for all requests that wait, however many there are.
type sharedReads[T any] struct {
	mu   sync.Mutex
	next map[string]*sharedRead[T] // those that have not started yet, by key id
}

// sharedRead is one read for all waiting requests. Its result is valid once done is closed.
type sharedRead[T any] struct {
	done   chan struct{}
	result T
	err    error
}

func newSharedReads[T any]() *sharedReads[T] {
	return &sharedReads[T]{next: map[string]*sharedRead[T]{}}
}

// join waits for a read that starts later, so that it finds everything written before. The read goes on when a caller leaves.
func (s *sharedReads[T]) join(ctx context.Context, keyID string, read func(context.Context) (T, error)) (T, error) {
	shared := s.prepare(context.WithoutCancel(ctx), keyID, read)
	select {
	case <-shared.done:
		return shared.result, shared.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *sharedReads[T]) prepare(ctx context.Context, keyID string, read func(context.Context) (T, error)) *sharedRead[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.next[keyID]
	if shared == nil {
		shared = &sharedRead[T]{done: make(chan struct{})}
		s.next[keyID] = shared
		go func() {
			defer close(shared.done)
			<-time.After(sharedReadInterval)
			s.mu.Lock()
			delete(s.next, keyID)
			s.mu.Unlock()
			shared.result, shared.err = read(ctx)
		}()
	}
	return shared
}
