//go:build faults

package faults

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// consumer follows the feed of a merchant, each page from another replica. Now and then it is killed while it waits for a page, and begins again
// with the cursor of the last page that it had handled. If it gets 409, what it has read is lost, and it continues with the cursor of the answer.
type consumer struct {
	*deployment

	account, key string
	readSessions sync.Map // ids; also of events that are lost

	// Of the one goroutine that follows or audits.
	cursor    string
	seen      []seenEvent // in the order of the feed
	killed    int
	conflicts int // answers 409: events that it has read are lost
}

// seenEvent is an event in the feed, with what it says of a session: nothing if it is of a key.
type seenEvent struct {
	id      string
	session string
	status  session.Status
	entry   feed.EntryID
}

func newConsumer(s *deployment, merchant *v1alpha1.Merchant, key string) *consumer {
	return &consumer{deployment: s, account: session.Account(published.ID(merchant.UID), false), key: key}
}

// follow reads the feed until stop, which waits for it.
func (c *consumer) follow() (stop func()) {
	done := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				_, _ = c.page(n, "2")
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		following.Wait()
	})
}

// hasRead reports whether an event of a session was read.
func (c *consumer) hasRead(session string) bool {
	_, read := c.readSessions.Load(session)
	return read
}

// errNoPage says that there was no page: no answer, 503, 429, or another cursor to go on with.
var errNoPage = errors.New("no page")

// page reads the next page and returns how many events it has.
func (c *consumer) page(n int, wait string) (int, error) {
	client := newCaller()
	defer client.http.CloseIdleConnections()
	if n%3 == 2 && wait != "0" {
		client.http.Timeout = time.Duration(n%50) * time.Millisecond
		c.killed++
	}
	path := "/api/v1/events?limit=7&wait=" + wait + "&after=" + url.QueryEscape(c.cursor)
	got, err := client.call(c.replicas[n%len(c.replicas)].public, http.MethodGet, path, c.key, "")
	switch {
	case err != nil || unavailable(got) || got.Status == http.StatusTooManyRequests:
		return 0, errNoPage
	case got.Status == http.StatusConflict:
		c.forget(got.Text("cursor"))
		return 0, errNoPage
	case got.Status != http.StatusOK:
		c.t.Errorf("the consumer got %d %v", got.Status, got.Body)
		return 0, errNoPage
	}
	items, _ := got.Body["items"].([]any)
	for _, item := range items {
		event := c.parse(item)
		c.seen = append(c.seen, event)
		c.readSessions.Store(event.session, true)
	}
	c.cursor = got.Text("cursor")
	return len(items), nil
}

func (c *consumer) parse(item any) seenEvent {
	fields, _ := item.(map[string]any)
	id, _ := fields["id"].(string)
	text, _ := fields["cursor"].(string)
	cursor, err := feed.ParseCursor(c.account, text)
	if err != nil {
		c.t.Errorf("cursor %q of %s: %v", text, id, err)
	}
	body, _ := fields["event"].(map[string]any)
	data, _ := body["data"].(map[string]any)
	of, _ := data["sessionId"].(string)
	status, _ := data["status"].(string)
	return seenEvent{id, of, session.Status(status), cursor.Entry}
}

// forget goes back to a cursor: all after it is lost.
func (c *consumer) forget(text string) {
	survivor, err := feed.ParseCursor(c.account, text)
	if err != nil {
		c.t.Errorf("a 409 has the cursor %q: %v", text, err)
	}
	left := slices.IndexFunc(c.seen, func(event seenEvent) bool { return event.entry == survivor.Entry }) + 1
	if left == 0 && survivor.Entry != (feed.EntryID{}) || left == len(c.seen) {
		c.t.Errorf("a 409 sends the consumer to %s, which it has not read, or where it is", survivor.Entry)
	}
	c.cursor, c.seen = text, c.seen[:left]
	c.conflicts++
}

// audit reads the rest of the feed. The consumer must have seen what is in it, in its order, and that must be each event of the sessions once: with
// the status of its session, and what came too late after the end. It returns how many events those are.
func (c *consumer) audit(sessions map[string]map[string]string) (events int) {
	c.t.Helper()
	sessions = maps.Clone(sessions)
	maps.DeleteFunc(sessions, func(text string, _ map[string]string) bool { // merchants of one bucket are in one keyspace
		id, err := session.ParseID(text)
		return err == nil && id.Account() != c.account
	})
	whole := &consumer{deployment: c.deployment, account: c.account, key: c.key}
	whole.toHead()
	c.toHead()
	if !slices.Equal(c.seen, whole.seen) {
		c.t.Errorf("the consumer has seen\n%v\nand the feed is\n%v", c.seen, whole.seen)
	}
	var seen []string
	for _, event := range c.seen {
		if event.session == "" {
			continue
		}
		if begin, _, late := strings.Cut(event.id, "_late_"); late && !slices.Contains(seen, begin+ended) {
			c.t.Errorf("%s is in the feed before the end of its session", event.id)
		}
		if status := session.Status(sessions[event.session]["s"]); event.status != status {
			c.t.Errorf("%s says that its session is %s, and that is %q", event.id, event.status, status)
		}
		seen = append(seen, event.id)
	}
	want := c.expectedEvents(sessions)
	slices.Sort(seen)
	slices.Sort(want)
	if !slices.Equal(seen, want) {
		c.t.Errorf("the consumer has seen %d events, want %d, each once:\n%v\n%v", len(seen), len(want), difference(seen, want), difference(want, seen))
	}
	return len(want)
}

// toHead reads until there is no more.
func (c *consumer) toHead() {
	c.t.Helper()
	eventually(c.t, "the consumer is at the head of the feed", func() bool {
		n, err := c.page(0, "0")
		return err == nil && n == 0
	})
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
