package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Why an endpoint is disabled.
const (
	// EndpointGone: it said that it wants no more events.
	EndpointGone = "gone"
	// EndpointFailing: it only failed for too long.
	EndpointFailing = "failing"
)

// UnhealthyAfter is how long an endpoint may only fail until it is unhealthy, whatever the reason.
const UnhealthyAfter = 5 * time.Minute

// ReportInterval is what one report of a change of health uses up of a merchant's budget, and ReportBurst how many may be made
// at once. So an endpoint that alternates causes no more than a report each minute.
const (
	ReportInterval = time.Minute
	ReportBurst    = 5
)

// Target is where a dispatcher sends the events of a merchant.
type Target struct {
	// ID is its fingerprint.
	ID string
	// Generation is the Merchant's, as far as the dispatcher knows; 0: unknown. Of two targets the one of the higher generation is the newer.
	Generation int64
	// Lag is how late the dispatcher may hear of another target. So one that was noted longer ago is older, whatever its generation: the Merchant
	// was restored from a backup since.
	Lag time.Duration
}

func (t Target) write(call *redis.Call) {
	call.Text("target", t.ID)
	call.Int("generation", t.Generation)
	call.Millis("lag", t.Lag)
}

// EndpointState is what Redis remembers of a merchant's endpoint. That of one which got no event yet has only its MerchantID, and
// its Target once that was changed.
type EndpointState struct {
	MerchantID string
	// Target is the fingerprint of where the attempts went, or go since it was changed.
	Target string
	// Generation is the Merchant's generation when Target was noted, at NotedAt; 0: unknown.
	Generation int64
	NotedAt    time.Time
	// FailingSince is when the first attempt failed after the last one that delivered; zero: none did.
	FailingSince time.Time
	// PermanentSince is the first of these failures that retrying cannot fix; zero: none is.
	PermanentSince time.Time
	// RefusedSince is since when a rule of the platform refuses the URL, with or without attempts; zero: none does.
	RefusedSince time.Time
	// DisabledAt is since when no events are sent, and Cause why; zero: they are.
	DisabledAt time.Time
	Cause      string
	// Unreadable: whether it is disabled is unknown, so events wait.
	Unreadable bool
	// ChangedAt is when the target was changed, until the next attempt; else zero.
	ChangedAt time.Time
	// HealthySince is the first delivery after the endpoint was last unhealthy, or another; zero: none yet.
	HealthySince time.Time
	// RecoveredAt is when it was last found to be unhealthy no more; zero: it never was.
	RecoveredAt time.Time

	// LastDelivery and LastFailure are those of any target; zero: none.
	LastDelivery time.Time
	LastFailure  AttemptFailure

	// Pending are the merchant's events that wait for delivery, now or later, and Dead its dead letters. A lease leaves them out.
	Pending, Dead int64

	// Reported is what was reported last of the endpoint, and when; empty: nothing.
	Reported Report
	// reportTAT is the theoretical arrival time of the next report of a change, of a limiter of one each ReportInterval.
	reportTAT time.Time
}

// AttemptFailure is a failed attempt: its reason in the words of conditions, and the answer, an HTTP status or the reason why there
// was none.
type AttemptFailure struct {
	Time           time.Time
	Reason, Answer string
}

// Status returns the HTTP status of the answer; 0: there was none.
func (f AttemptFailure) Status() int32 {
	status, err := strconv.ParseInt(f.Answer, 10, 32)
	if err != nil {
		return 0
	}
	return int32(status)
}

// Report is what was reported of an endpoint.
type Report struct {
	// Reason is that of the condition.
	Reason        string
	At            time.Time
	Pending, Dead int64
}

// Disabled reports whether no events may be sent to the Target.
func (e EndpointState) Disabled() bool { return !e.DisabledAt.IsZero() }

// Outdates reports whether another dispatcher has noted a newer target than this one, as lib/target.lua does; now is the time of Redis.
func (e EndpointState) Outdates(target Target, now time.Time) bool {
	return e.Target != "" && e.Target != target.ID && target.Generation != 0 && e.Generation > target.Generation && now.Sub(e.NotedAt) < target.Lag
}

// Unhealthy reports whether the endpoint only fails: of a failure that retrying cannot fix, or for UnhealthyAfter. now is the time of Redis.
func (e EndpointState) Unhealthy(now time.Time) bool {
	return !e.PermanentSince.IsZero() || !e.FailingSince.IsZero() && now.Sub(e.FailingSince) >= UnhealthyAfter
}

// MayReportChange reports whether the merchant's budget allows another report of a change; now is the time of Redis.
func (e EndpointState) MayReportChange(now time.Time) bool { return MayReportChange(e.reportTAT, now) }

// MayReportChange reports whether a budget with this theoretical arrival time allows another report; now is the time of Redis.
func MayReportChange(tat, now time.Time) bool {
	return !now.Before(tat.Add(-(ReportBurst - 1) * ReportInterval))
}

// CountsChanged reports whether events or dead letters wait where none were reported, or none any more. Events that an endpoint
// without a failure waits for are delivered soon, so they are no change.
func (e EndpointState) CountsChanged() bool {
	pending := e.Pending > 0 && (e.Reported.Pending > 0 || !e.FailingSince.IsZero())
	return pending != (e.Reported.Pending > 0) || (e.Dead > 0) != (e.Reported.Dead > 0)
}

// endpointRetention is how long an endpoint is remembered: longer than any quiet merchant rests between two events.
const endpointRetention = 400 * 24 * time.Hour

// endpointFields are the fields of an endpoint's hash, in the order in which parseEndpoint decodes them.
var endpointFields = redis.Fields{
	{Name: "TARGET", Field: "target"},
	{Name: "SINCE", Field: "since"},
	{Name: "PERMANENT", Field: "permanent"},
	{Name: "DISABLED", Field: "disabled"},
	{Name: "CAUSE", Field: "cause"},
	{Name: "CHANGED", Field: "changed"},
	{Name: "HEALTHY", Field: "healthy"},
	{Name: "RECOVERED", Field: "recovered"},
	{Name: "DELIVERED", Field: "delivered"},
	{Name: "FAILED", Field: "failed"},
	{Name: "FAILED_REASON", Field: "reason"},
	{Name: "ANSWER", Field: "answer"},
	{Name: "REPORTED", Field: "reported"},
	{Name: "REPORTED_AT", Field: "reported_at"},
	{Name: "PENDING", Field: "pending"},
	{Name: "DEAD", Field: "dead"},
	{Name: "REPORT_TAT", Field: "paid"},
	{Name: "GENERATION", Field: "generation"},
	{Name: "NOTED", Field: "noted"},
	{Name: "REFUSED_URL", Field: "refused_url"},
}

// parseEndpoint decodes the fields. One that cannot be read is as if it were missing: the others still count.
func parseEndpoint(merchantID string, fields *redis.Reply) (EndpointState, error) {
	number := func() (n int64, readable bool) {
		text := fields.OptionalText()
		n, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
		return n, err == nil
	}
	integer := func() int64 {
		n, _ := number()
		return n
	}
	millis := func() time.Time {
		if n := integer(); n != 0 {
			return time.UnixMilli(n).UTC()
		}
		return time.Time{}
	}
	state := EndpointState{MerchantID: merchantID, Target: fields.OptionalText(), FailingSince: millis(), PermanentSince: millis()}
	if disabled, readable := number(); readable && disabled != 0 {
		state.DisabledAt = time.UnixMilli(disabled).UTC()
	} else {
		state.Unreadable = !readable
	}
	state.Cause, state.ChangedAt, state.HealthySince, state.RecoveredAt = fields.OptionalText(), millis(), millis(), millis()
	state.LastDelivery = millis()
	state.LastFailure = AttemptFailure{millis(), fields.OptionalText(), fields.OptionalText()}
	state.Reported = Report{fields.OptionalText(), millis(), integer(), integer()}
	state.reportTAT = millis()
	state.Generation, state.NotedAt = integer(), millis()
	state.RefusedSince = millis()
	if err := fields.Err(); err != nil {
		return EndpointState{MerchantID: merchantID, Unreadable: true}, err
	}
	return state, nil
}

// endpointKeys writes those of a merchant's endpoint and of the bucket's watched ones.
func endpointKeys(call *redis.Call, merchantID string) {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call.Key("endpoint_key", space, EndpointKey, merchantID)
	call.Key("watched_key", space, watchedKey)
}

// ResumeEndpoint notes the target of a merchant's endpoint: what a former target answers later is outdated. It forgets the health at the
// former target, so that events are sent to a disabled endpoint again, and reports whether it did. An outdated target changes nothing; one
// without an ID enables a disabled endpoint at the same target. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) ResumeEndpoint(ctx context.Context, merchantID string, target Target) (bool, error) {
	call := redis.NewCall(resumeEndpointScript)
	endpointKeys(&call, merchantID)
	target.write(&call)
	call.Text("merchant", merchantID)
	return o.changeEndpoint(ctx, &call, "resume")
}

// RecordRefusal remembers that nothing may be sent to a merchant's endpoint at this target, and why: a reason in the words of conditions, and that
// of an attempt. It reports whether that is new. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) RecordRefusal(ctx context.Context, merchantID string, target Target, reason, answer string) (bool, error) {
	call := redis.NewCall(refuseEndpointScript)
	endpointKeys(&call, merchantID)
	target.write(&call)
	call.Text("merchant", merchantID)
	call.Text("health", reason)
	call.Text("answer", answer)
	return o.changeEndpoint(ctx, &call, "refuse")
}

// EndRefusal forgets the health of an endpoint that a rule refused and none refuses now, if it is still as this state says and not disabled. It
// reports whether it did. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) EndRefusal(ctx context.Context, state EndpointState) (bool, error) {
	call := redis.NewCall(endRefusalScript)
	endpointKeys(&call, state.MerchantID)
	call.Text("target", state.Target)
	call.Text("refused", millisText(state.RefusedSince))
	call.Text("merchant", state.MerchantID)
	return o.changeEndpoint(ctx, &call, "end the refusal of")
}

// changeEndpoint runs a script and reports whether it changed anything. action is what it does to an endpoint, for the error.
func (o *Outbox) changeEndpoint(ctx context.Context, call *redis.Call, action string) (bool, error) {
	reply, err := o.redis.Run(ctx, call)
	changed := false
	if err == nil {
		reply.RequireOK()
		changed = reply.Int() == 1
		err = reply.Err()
	}
	if err != nil {
		return false, fmt.Errorf("%s an endpoint: %w", action, err)
	}
	return changed, nil
}

// Endpoints are states of endpoints of one bucket, and the time of Redis.
type Endpoints struct {
	Now    time.Time
	States []EndpointState
}

// endpointPage is how many endpoints are read in one script.
const endpointPage = 200

// WatchedEndpoints returns the endpoints of a bucket that fail, are disabled, or have a change of health to report. Those that
// cannot be decoded are left out. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) WatchedEndpoints(ctx context.Context, bucket session.Bucket) (Endpoints, error) {
	return o.readEndpoints(ctx, bucket, nil)
}

// Endpoints returns those of merchants of a bucket. Errors are those of WatchedEndpoints.
func (o *Outbox) Endpoints(ctx context.Context, bucket session.Bucket, merchantIDs ...string) (Endpoints, error) {
	var all Endpoints
	for page := range slices.Chunk(merchantIDs, endpointPage) {
		some, err := o.readEndpoints(ctx, bucket, page)
		if err != nil {
			return all, err
		}
		all = Endpoints{some.Now, append(all.States, some.States...)}
	}
	return all, nil
}

func (o *Outbox) readEndpoints(ctx context.Context, bucket session.Bucket, merchantIDs []string) (Endpoints, error) {
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(readEndpointsScript)
	call.Key("watched_key", space, watchedKey)
	call.Key("queue_key", space, QueueKey)
	call.Text("endpoint_prefix", space.Key(EndpointKey))
	call.Text("account_dead_prefix", space.Key(accountDeadLettersKey))
	for _, id := range merchantIDs {
		call.More(id)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return Endpoints{}, fmt.Errorf("read endpoints: %w", err)
	}
	reply.RequireOK()
	found := Endpoints{Now: reply.Millis()}
	rows := reply.List()
	if err := reply.Err(); err != nil {
		return Endpoints{}, fmt.Errorf("read endpoints: %w", err)
	}
	for rows.More() {
		row := rows.List()
		merchantID, pending, dead, fields := row.Text(), row.Int(), row.Int(), row.List()
		state, err := parseEndpoint(merchantID, &fields)
		if err != nil || row.Err() != nil {
			continue
		}
		state.Pending, state.Dead = pending, dead
		found.States = append(found.States, state)
	}
	return found, nil
}

// RecordEndpointReport remembers that this state was reported, with the reason, and whether it was healthy. If another dispatcher has
// reported meanwhile, a report must follow; if not, and nothing of a healthy endpoint is left to report, it is watched no more.
// The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) RecordEndpointReport(ctx context.Context, state EndpointState, reason string, healthy bool) error {
	before := state.Reported
	call := redis.NewCall(reportEndpointScript)
	reportArgs(&call, state, healthy)
	call.Flag("reported", true)
	call.Text("last_reason", before.Reason)
	call.Text("last_at", millisText(before.At))
	call.Flag("changed", reason != before.Reason || state.CountsChanged())
	call.Text("reason", reason)
	call.Int("pending", state.Pending)
	call.Int("dead", state.Dead)
	return o.markEndpoint(ctx, &call)
}

// UnwatchEndpoint says that there is nothing to report of an endpoint that was found healthy, or without a delivery. One whose health
// is not that of the state any more stays watched. Errors are those of RecordEndpointReport.
func (o *Outbox) UnwatchEndpoint(ctx context.Context, state EndpointState) error {
	call := redis.NewCall(reportEndpointScript)
	reportArgs(&call, state, true)
	call.Flag("reported", false)
	return o.markEndpoint(ctx, &call)
}

// reportArgs writes the keys, and the arguments that do not belong to a report.
func reportArgs(call *redis.Call, state EndpointState, healthy bool) {
	endpointKeys(call, state.MerchantID)
	call.Key("account_dead_key", redis.BucketKeyspace(session.MerchantBucket(state.MerchantID)), accountDeadLettersKey, state.MerchantID)
	call.Text("merchant", state.MerchantID)
	call.Flag("healthy", healthy)
	call.Text("since", millisText(state.HealthySince))
}

// millisText is a time as an endpoint's hash has it; empty: none.
func millisText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return decimal(t.UnixMilli())
}

// ForgetEndpoint forgets the endpoint of a merchant that has none any more. Errors are those of RecordEndpointReport.
func (o *Outbox) ForgetEndpoint(ctx context.Context, merchantID string) error {
	call := redis.NewCall(forgetEndpointScript)
	endpointKeys(&call, merchantID)
	call.Text("merchant", merchantID)
	return o.markEndpoint(ctx, &call)
}

func (o *Outbox) markEndpoint(ctx context.Context, call *redis.Call) error {
	reply, err := o.redis.Run(ctx, call)
	if err == nil {
		reply.RequireOK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("mark an endpoint: %w", err)
	}
	return nil
}
