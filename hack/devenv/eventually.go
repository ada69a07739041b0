package main

import (
	"context"
	"fmt"
	"time"
)

// patienceToStart is how long anything may take to become ready, on a busy machine.
const patienceToStart = time.Minute

// eventually tries until it works. Its error says what was waited for, and why the last try failed.
func eventually(ctx context.Context, what string, try func(context.Context) error) error {
	deadline := time.After(patienceToStart)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("waited %s for %s: %w", patienceToStart, what, err)
		case <-ticker.C:
		}
	}
}
