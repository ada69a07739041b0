package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	// retention is from the record of an event on, delivered or not.
	retention = 30 * 24 * time.Hour
	// rotationRetention is longer than any key should go without a rotation.
	rotationRetention = 400 * 24 * time.Hour
	// testRetention is longer than it takes to publish that a test was handled, which stops its repetition.
	testRetention = retention
)

// The fields of an event's hash. The account and the event, as package feed stores it, are written once. The others are of its delivery.
const (
	accountField  = "m"
	eventField    = "b"
	attemptsField = "attempts"
)

// eventFields are the names of these fields in scripts. An endpoint's hash also has ATTEMPTS, and ANSWER.
var eventFields = redis.Fields{
	{Name: "ACCOUNT", Field: accountField},
	{Name: "EVENT", Field: eventField},
	{Name: "ATTEMPTS", Field: attemptsField},
	{Name: "WHY", Field: "why"},
	{Name: "ANSWER", Field: "answer"},
	{Name: "MERCHANT_NAME", Field: "merchant"},
}

// ParseEvent decodes the hash of an event. It is given name and value of each field, as redis.Reply.Map reads them from an HGETALL. The error is
// redis.ErrCorrupt, or feed.ErrUnsupported with what is readable of the event.
func ParseEvent(id string, fields map[string]string) (feed.Event, error) {
	event, err := feed.Parse(fields[accountField], fields[eventField])
	if err != nil && !errors.Is(err, feed.ErrUnsupported) {
		return feed.Event{}, redis.ErrCorrupt
	}
	event.ID = id
	return event, err
}

// RecordRotation records the event, made by NewKeyRotated, unless that of this or a later issue
// of the key was recorded before, also in the feed. The first rotation that is seen of a key is recorded only if it is younger than an event is kept.
// It reports whether the event was recorded. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) RecordRotation(ctx context.Context, event feed.Event, now time.Time, history feed.History) (bool, error) {
	call := redis.NewCall(rotationScript)
	space := recordKeys(&call, event)
	call.Key("last_key", space, RotationKey, event.Key.KeyID)
	call.Key("feed_key", space, FeedKey, event.Account())
	call.Int("issued", event.OccurredAt.UnixMilli())
	call.Millis("keep", rotationRetention)
	call.Flag("unseen", now.Sub(event.OccurredAt) < retention)
	call.Text("account", event.Account())
	call.WriteBytes(event.Append(nil))
	call.End("event")
	call.Text("history", history.String())
	return o.record(ctx, &call, event)
}

// RecordTest records the event, made by NewWebhookTest, unless it was the last one recorded of this merchant. It reports whether the
// event was recorded. Errors are those of RecordRotation.
func (o *Outbox) RecordTest(ctx context.Context, event feed.Event) (bool, error) {
	call := redis.NewCall(testScript)
	call.Key("last_key", recordKeys(&call, event), testKey, event.MerchantID)
	call.Text("trigger", event.ID)
	call.Millis("keep", testRetention)
	call.Text("account", event.Account())
	call.WriteBytes(event.Append(nil))
	call.End("event")
	return o.record(ctx, &call, event)
}

// recordKeys writes the first keys of a script that records an event. The next one says whether that was done before.
func recordKeys(call *redis.Call, event feed.Event) redis.Keyspace {
	space := redis.BucketKeyspace(event.Bucket())
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	call.Key("event_key", space, EventKey, event.ID)
	return space
}

// record runs a script that records an event.
func (o *Outbox) record(ctx context.Context, call *redis.Call, event feed.Event) (bool, error) {
	reply, err := o.redis.Run(ctx, call)
	if err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	reply.RequireOK()
	recorded := reply.Int() == 1
	if err := reply.Err(); err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	return recorded, nil
}

// WriteKeys writes the keys of a script that may have to record a session's event with this mark:
// the key of the event, which the script calls by this name, the queue and its due merchants.
func WriteKeys(call *redis.Call, name string, space redis.Keyspace, id session.ID, mark feed.Mark) {
	call.Key(name, space, EventKey, "evt_", strings.TrimPrefix(id.String(), "ps_"), "_", string(mark)) // SessionEventID in one
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
}
