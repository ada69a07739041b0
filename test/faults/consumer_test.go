//go:build faults

package faults

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// consumer follows the feed of a merchant, each page from another replica. Now and then it is killed while it waits for a page, and begins again
// with the cursor of the last page that it had handled.
type consumer struct {
	cursor string
	seen   []string // ids of events, in the order of the feed
	killed int
}

// follow reads the feed until stop, which waits for it.
func (c *consumer) follow(s *storm) (stop func()) {
	done := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				_, _ = c.page(s, n, "2")
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		following.Wait()
	})
}

// errNoPage says that there was no answer, or 503 or 429.
var errNoPage = errors.New("no page")

// page reads the next page and returns how many events it has.
func (c *consumer) page(s *storm, n int, wait string) (int, error) {
	client := newCaller()
	defer client.http.CloseIdleConnections()
	if n%3 == 2 && wait != "0" {
		client.http.Timeout = time.Duration(n%50) * time.Millisecond
		c.killed++
	}
	path := "/api/v1/events?limit=7&wait=" + wait + "&after=" + url.QueryEscape(c.cursor)
	got, err := client.call(s.replicas[n%len(s.replicas)].public, http.MethodGet, path, s.key, "")
	switch {
	case err != nil || unavailable(got) || got.Status == http.StatusTooManyRequests:
		return 0, errNoPage
	case got.Status != http.StatusOK:
		s.t.Errorf("the consumer got %d %v", got.Status, got.Body)
		return 0, errNoPage
	}
	items, _ := got.Body["items"].([]any)
	for _, item := range items {
		fields, _ := item.(map[string]any)
		id, _ := fields["id"].(string)
		c.seen = append(c.seen, id)
	}
	c.cursor = got.Text("cursor")
	return len(items), nil
}

// audit reads the rest of the feed. The consumer must have seen each event once, those of a session with its end before what came too late.
func (c *consumer) audit(s *storm, events []string) {
	s.t.Helper()
	eventually(s.t, "the consumer is at the head of the feed", func() bool {
		n, err := c.page(s, 0, "0")
		return err == nil && n == 0
	})
	seen := slices.DeleteFunc(slices.Clone(c.seen), func(id string) bool { return strings.HasPrefix(id, "evt_key_") })
	for i, id := range seen {
		if begin, _, late := strings.Cut(id, "_late_"); late && !slices.Contains(seen[:i], begin+ended) {
			s.t.Errorf("%s is in the feed before the end of its session", id)
		}
	}
	slices.Sort(seen)
	slices.Sort(events)
	if !slices.Equal(seen, events) {
		s.t.Errorf("the consumer has seen %d events, want %d, each once:\n%v\n%v", len(seen), len(events), difference(seen, events), difference(events, seen))
	}
}

// difference returns what of a is not in b, and what is in a twice.
func difference(a, b []string) (only []string) {
	for i, id := range a {
		if !slices.Contains(b, id) || slices.Contains(a[:i], id) {
			only = append(only, id)
		}
	}
	return only
}
