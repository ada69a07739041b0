package storetest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Checker is what *testing.T and *rapid.T have in common here.
type Checker interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// Inspect returns a client to look at what is in Redis.
func Inspect(t testing.TB, server *redistest.Server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr(), ReadTimeout: Timeout, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Tag is what the keys of a merchant begin with.
func Tag(merchantID string) string { return BucketTag(session.MerchantBucket(merchantID)) }

// BucketTag is what the keys of a bucket begin with.
func BucketTag(bucket session.Bucket) string { return string(redis.BucketKeyspace(bucket)) }

// Queued finds an event in the queue of its bucket: what stands there for it, and when it is due.
func Queued(t Checker, c *goredis.Client, tag, id string) (member string, at time.Time, there bool) {
	t.Helper()
	members, err := c.ZRange(t.Context(), tag+"queue", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range members {
		words := strings.Split(member, ":")
		if words[2] != id {
			continue
		}
		ms, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil || len(words[1]) != 13 {
			t.Fatal("the queue holds", member)
		}
		return member, time.UnixMilli(ms), true
	}
	return "", time.Time{}, false
}

// The places of what ChangeEvent changes.
const (
	EventKind = 1
	EventTime = 2
)

// ChangeEvent changes a text of a recorded event, by its place.
func ChangeEvent(t Checker, c *goredis.Client, key string, place int, text string) {
	t.Helper()
	texts := strings.Split(c.HGet(t.Context(), key, "b").Val(), "\t")
	if len(texts) <= place {
		t.Fatal(key, "is no event")
	}
	texts[place] = text
	if err := c.HSet(t.Context(), key, "b", strings.Join(texts, "\t")).Err(); err != nil {
		t.Fatal(err)
	}
}

// Events returns all events of a session in the order of their sequence. Each must be on its way.
func Events(t Checker, c *goredis.Client, id session.ID) []feed.Event {
	t.Helper()
	bucket := BucketTag(id.Bucket())
	keys, err := c.Keys(t.Context(), bucket+"event:"+feed.SessionEventID(id, "*")).Result()
	if err != nil {
		t.Fatal(err)
	}
	var events []feed.Event
	for _, key := range keys {
		eventID := strings.TrimPrefix(key, bucket+"event:")
		event, err := outbox.ParseEvent(eventID, c.HGetAll(t.Context(), key).Val())
		if err != nil {
			t.Fatal(eventID, err)
		}
		if _, _, there := Queued(t, c, bucket, eventID); !there {
			t.Fatal(eventID, "is not in the queue")
		}
		events = append(events, event)
	}
	slices.SortFunc(events, func(a, b feed.Event) int { return cmp.Compare(a.Session.Sequence, b.Session.Sequence) })
	return events
}

// Kinds are those of events.
func Kinds(events []feed.Event) []v1alpha1.WebhookEvent {
	var kinds []v1alpha1.WebhookEvent
	for _, event := range events {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}
