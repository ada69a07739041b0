package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// post is the floor: it reads events that were delivered once, and posts the very same bytes to the same endpoints, as many at a time.
// That is all it does: it has no Redis, signs nothing and takes no care where a connection goes.
//
// It writes a line when it is ready, posts when it is sent one, and writes another at the end; then it waits for ctx to end, for
// what it has used up can only be read as long as it is there.
func post(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	var events []delivery
	if err := json.Unmarshal(text, &events); err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	byEndpoint := map[string]chan delivery{}
	for _, event := range events {
		if byEndpoint[event.URL] == nil {
			byEndpoint[event.URL] = make(chan delivery, len(events))
		}
		byEndpoint[event.URL] <- event
	}
	runtime.GC() // what was read is not part of what is measured
	fmt.Fprintln(out, "ready")
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	if err := postAll(ctx, byEndpoint); err != nil {
		return err
	}
	fmt.Fprintln(out, "done")
	<-ctx.Done()
	return nil
}

func postAll(ctx context.Context, byEndpoint map[string]chan delivery) error {
	client := newFloorClient()
	failed := make(chan error, len(byEndpoint)*perEndpoint)
	var workers sync.WaitGroup
	for _, events := range byEndpoint {
		close(events)
		for range perEndpoint {
			workers.Go(func() {
				for event := range events {
					if err := postOne(ctx, client, event); err != nil {
						failed <- err
						return
					}
				}
			})
		}
	}
	workers.Wait()
	close(failed)
	return <-failed // nil: it is closed
}

// newFloorClient has the settings of the dispatcher's transport that cost or save something, and its bound of an attempt.
func newFloorClient() *http.Client {
	const idle, idlePerHost, attempt = 1024, 64, 15 * time.Second
	return &http.Client{
		Timeout: attempt,
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, DisableCompression: true,
			MaxIdleConns: idle, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: 16 << 10,
		},
	}
}

func postOne(ctx context.Context, client *http.Client, event delivery) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, event.URL, strings.NewReader(event.Body))
	if err != nil {
		return err
	}
	for name, value := range event.Header {
		request.Header.Set(name, value)
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("%s answered %s", event.URL, answer.Status)
	}
	return nil
}
