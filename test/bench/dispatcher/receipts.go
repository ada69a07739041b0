package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// receipts asks the receiver, which is a process of its own, what came.
type receipts struct{ control string }

func (r receipts) ask(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+r.control+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func (r receipts) seen(ctx context.Context) (seen seen, err error) {
	err = r.ask(ctx, http.MethodGet, seenPath, &seen)
	return seen, err
}

func (r receipts) events(ctx context.Context) (all []delivery, err error) {
	err = r.ask(ctx, http.MethodGet, eventsPath, &all)
	return all, err
}

func (r receipts) forget(ctx context.Context) error {
	return r.ask(ctx, http.MethodPost, forgetPath, nil)
}

// await waits until that many different events have come, and looks often enough to tell the time it took.
func (r receipts) await(ctx context.Context, events int) error {
	ctx, cancel := context.WithTimeout(ctx, process.Patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := r.seen(ctx)
		if err == nil && now.Distinct >= events {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("of %d events %d came in %s", events, now.Distinct, process.Patience))
		case <-ticker.C:
		}
	}
}
