package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Why an endpoint is disabled.
const (
	// EndpointGone: it said that it wants no more events.
	EndpointGone = "gone"
	// EndpointFailing: it did nothing but fail for too long.
	EndpointFailing = "failing"
)

// EndpointState is what Redis remembers of a merchant's endpoint while something is wrong with it. That of a
// healthy one has only its MerchantID.
type EndpointState struct {
	MerchantID string
	// Target is the fingerprint of where the attempts went that failed, or go since it was resumed.
	Target string
	// FailingSince is when the first attempt failed after the last one that delivered; zero: none did.
	FailingSince time.Time
	// DisabledAt is since when no events are sent, and Cause why; zero: they are.
	DisabledAt time.Time
	Cause      string
	// LastAnswer is that of the last attempt that failed: an HTTP status, or the reason why there was none.
	LastAnswer string
	// ResumedAt is since when events are sent again, until that is reported; else zero.
	ResumedAt time.Time
	// Reported: that it is disabled has been reported to the merchant's people.
	Reported bool
}

// Disabled reports whether no events may be sent to the Target.
func (e EndpointState) Disabled() bool { return !e.DisabledAt.IsZero() }

// endpointFields are those of an endpoint's hash, in the order in which endpointOf decodes them.
var endpointFields = redis.NewFields("ENDPOINT_FIELDS",
	"TARGET=target", "SINCE=since", "DISABLED=disabled", "CAUSE=cause", "ANSWER=answer", "RESUMED=resumed", "REPORTED=reported")

// listUnhealthyLua reads the endpoints of a bucket that are disabled, or resumed and not reported yet, and those that were. KEYS[1]
// lists their merchants; ARGV[1] is what the keys of the bucket's endpoints begin with, which are only read.
const listUnhealthyLua = `
local unhealthy = {}
for _, merchant in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do
  unhealthy[#unhealthy + 1] = {merchant, read_endpoint(ARGV[1] .. merchant)}
end
return {'OK', unhealthy}
`

// endpointOf decodes the fields.
func endpointOf(merchantID string, fields *redis.Reply) (EndpointState, error) {
	state := EndpointState{
		MerchantID:   merchantID,
		Target:       fields.OptionalText(),
		FailingSince: fields.OptionalMillis(),
		DisabledAt:   fields.OptionalMillis(),
		Cause:        fields.OptionalText(),
		LastAnswer:   fields.OptionalText(),
		ResumedAt:    fields.OptionalMillis(),
		Reported:     fields.OptionalText() == "1",
	}
	if err := fields.Err(); err != nil {
		return EndpointState{}, err
	}
	return state, nil
}

func endpointKeys(merchantID string) []string {
	space := redis.KeyspaceOf(session.BucketOf(merchantID))
	return []string{space.Key(redis.EndpointKey, merchantID), space.Key(redis.UnhealthyKey)}
}

// ResumeEndpoint lets events be sent again if the merchant's endpoint was disabled for another target than this
// one, with an empty target for any, and reports whether it was. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) ResumeEndpoint(ctx context.Context, merchantID, target string) (bool, error) {
	reply, err := o.redis.Run(ctx, resumeEndpointScript, endpointKeys(merchantID), target, merchantID)
	if err != nil {
		return false, fmt.Errorf("resume an endpoint: %w", err)
	}
	reply.OK()
	resumed := reply.Int() == 1
	if err := reply.Err(); err != nil {
		return false, fmt.Errorf("resume an endpoint: %w", err)
	}
	return resumed, nil
}

// UnhealthyEndpoints returns the endpoints of a bucket that are disabled, or were resumed and that is not reported
// yet. Those that cannot be decoded are left out. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) UnhealthyEndpoints(ctx context.Context, bucket session.Bucket) ([]EndpointState, error) {
	space := redis.KeyspaceOf(bucket)
	reply, err := o.redis.Run(ctx, listUnhealthyScript, []string{space.Key(redis.UnhealthyKey)}, space.Key(redis.EndpointKey))
	if err != nil {
		return nil, fmt.Errorf("list unhealthy endpoints: %w", err)
	}
	reply.OK()
	rows := reply.List()
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("list unhealthy endpoints: %w", err)
	}
	var states []EndpointState
	for rows.More() {
		row := rows.List()
		merchantID, fields := row.Text(), row.List()
		state, err := endpointOf(merchantID, &fields)
		switch {
		case err != nil || row.Err() != nil:
		case state.Disabled() || !state.ResumedAt.IsZero():
			states = append(states, state)
		default: // it is healthy again; only a script that declares its key may take it off the list
			if err := o.EndpointReported(ctx, state); err != nil {
				return states, err
			}
		}
	}
	return states, nil
}

// EndpointReported remembers that this state has been reported, unless it has changed since. The error is redis.ErrCorrupt or
// redis.ErrUnavailable.
func (o *Outbox) EndpointReported(ctx context.Context, state EndpointState) error {
	reply, err := o.redis.Run(ctx, reportEndpointScript, endpointKeys(state.MerchantID),
		optionalTime(state.DisabledAt), optionalTime(state.ResumedAt), state.MerchantID)
	if err == nil {
		reply.OK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("mark an endpoint as reported: %w", err)
	}
	return nil
}

// optionalTime writes a time in milliseconds, and nothing for none.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}
