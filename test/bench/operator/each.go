package main

import (
	"context"
	"sync"
	"sync/atomic"
)

// each does something count times, some at a time, until one fails; that is the error.
func each(ctx context.Context, workers, count int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}
