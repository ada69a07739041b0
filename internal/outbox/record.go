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

// ParseEvent decodes the hash of an event: m is its account, b the event as package feed stores it, both written once. The others are of its
// delivery. It is given name and value of each field, as redis.Reply.Map reads them from an HGETALL. The error is redis.ErrCorrupt, or
// feed.ErrUnsupported with what is readable of the event.
func ParseEvent(id string, fields map[string]string) (feed.Event, error) {
	event, err := feed.Parse(fields["m"], fields["b"])
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
	space := redis.KeyspaceOf(event.Bucket())
	return o.record(ctx, rotationScript, event, []string{space.Key(rotationKey, event.Key.KeyID), space.Key(FeedKey, event.Account())},
		event.OccurredAt.UnixMilli(), rotationRetention.Milliseconds(), redis.Flag(now.Sub(event.OccurredAt) < retention),
		event.Account(), event.Append(nil), history.String())
}

// RecordTest records the event, made by NewWebhookTest, unless it was the last one recorded of this merchant. It reports whether the
// event was recorded. Errors are those of RecordRotation.
func (o *Outbox) RecordTest(ctx context.Context, event feed.Event) (bool, error) {
	last := redis.KeyspaceOf(event.Bucket()).Key(testKey, event.MerchantID)
	return o.record(ctx, testScript, event, []string{last}, event.ID, testRetention.Milliseconds(), event.Account(), event.Append(nil))
}

// record runs a script that records an event. Its own keys begin with the one that says which event was recorded last.
func (o *Outbox) record(ctx context.Context, script *redis.Script, event feed.Event, own []string, args ...any) (bool, error) {
	space := redis.KeyspaceOf(event.Bucket())
	keys := append([]string{space.Key(QueueKey), space.Key(DueKey), space.Key(EventKey, event.ID)}, own...)
	reply, err := o.redis.Run(ctx, script, keys, args...)
	if err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	reply.OK()
	recorded := reply.Int() == 1
	if err := reply.Err(); err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	return recorded, nil
}

// WriteKeys writes the keys of a script that may have to record the event with this mark among those of a session: the event, the
// queue and its due merchants.
func WriteKeys(call *redis.Call, space redis.Keyspace, id session.ID, mark feed.Mark) {
	call.Key(space, EventKey, "evt_", strings.TrimPrefix(id.String(), "ps_"), "_", string(mark)) // SessionEventID in one
	call.Key(space, QueueKey)
	call.Key(space, DueKey)
}
