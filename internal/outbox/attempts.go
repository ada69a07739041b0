package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	// WebhookTestInterval is the least time between two test events that people ask for, for each merchant.
	WebhookTestInterval = 10 * time.Second
	webhookTestKeep     = 24 * time.Hour
	// keptAttempts is how many failed attempts are kept of a merchant.
	keptAttempts = 10
)

// Attempt is how an attempt to deliver an event ended.
type Attempt struct {
	At   time.Time
	Kind v1alpha1.WebhookEvent
	// Reason is that of a dead letter, or "delivered"; Answer an HTTP status, or the reason why there was none.
	Reason, Answer string
	Took           time.Duration
}

// WebhookTest is the last test event that a person asked for.
type WebhookTest struct {
	// EventID is empty if there was none lately.
	EventID string
	Attempt
	// Answered: the attempt has ended.
	Answered bool
	// Target is the fingerprint of where it was sent, as published.Webhook.Target; empty: unknown.
	Target string
}

// Attempts are a merchant's last test event, and its last failed attempts, the newest first.
type Attempts struct {
	WebhookTest WebhookTest
	Failed      []Attempt
}

// SendWebhookTest records a test event that a person asked for. It is one of test mode: it has a queue of its own, and what the endpoint answers
// changes neither its health nor the dead letters, so it may be sent to a disabled endpoint, too. false: the last one is too young.
// The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (o *Outbox) SendWebhookTest(ctx context.Context, event feed.Event) (bool, error) {
	event.TestMode = true
	call := redis.NewCall(sendWebhookTestScript)
	call.Key("webhook_test_key", recordKeys(&call, event), webhookTestKey, event.MerchantID)
	call.Millis("every", WebhookTestInterval)
	call.Millis("keep", webhookTestKeep)
	call.Text("id", event.ID)
	call.Text("account", event.Account())
	call.WriteBytes(event.Append(nil))
	call.End("event")
	return o.record(ctx, &call, event)
}

// IsWebhookTest reports whether a person asked for the event: it is tried once.
func IsWebhookTest(event feed.Event) bool {
	return event.TestMode && event.Kind == v1alpha1.EventWebhookTest
}

// AnswerWebhookTest keeps how a test event was answered, and by which target. Errors are those of SendWebhookTest.
func (o *Outbox) AnswerWebhookTest(ctx context.Context, event feed.Event, target string, attempt Attempt) error {
	call := redis.NewCall(answerWebhookTestScript)
	call.Key("webhook_test_key", redis.BucketKeyspace(event.Bucket()), webhookTestKey, event.MerchantID)
	call.Text("id", event.ID)
	call.Text("reason", attempt.Reason)
	call.Text("answer", attempt.Answer)
	call.Int("took", attempt.Took.Milliseconds())
	call.Text("target", target)
	reply, err := o.redis.Run(ctx, &call)
	if err == nil {
		reply.RequireOK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("keep the answer to a test event: %w", err)
	}
	return nil
}

// Attempts returns what a merchant's people see of attempts. Errors are those of SendWebhookTest.
func (o *Outbox) Attempts(ctx context.Context, merchantID string, now time.Time) (Attempts, error) {
	space := redis.BucketKeyspace(session.MerchantBucket(merchantID))
	call := redis.NewCall(readAttemptsScript)
	call.Key("webhook_test_key", space, webhookTestKey, merchantID)
	call.Key("endpoint_key", space, EndpointKey, merchantID)
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return Attempts{}, fmt.Errorf("read attempts: %w", err)
	}
	reply.RequireOK()
	fields, failed := reply.List(), reply.OptionalText()
	if err := reply.Err(); err != nil {
		return Attempts{}, fmt.Errorf("read attempts: %w", err)
	}
	test := WebhookTest{EventID: fields.OptionalText()}
	test.Kind, test.At = v1alpha1.EventWebhookTest, parseMillis(fields.OptionalText())
	test.Reason, test.Answer = fields.OptionalText(), fields.OptionalText()
	took, _ := strconv.ParseInt(fields.OptionalText(), 10, 64)
	test.Took, test.Answered = time.Duration(took)*time.Millisecond, test.Reason != ""
	test.Target = fields.OptionalText()
	found := Attempts{WebhookTest: test}
	for line := range strings.Lines(failed) {
		if attempt, ok := parseAttempt(strings.TrimSuffix(line, "\n")); ok && now.Sub(attempt.At) < retention {
			found.Failed = append(found.Failed, attempt)
		}
	}
	slices.Reverse(found.Failed)
	return found, nil
}

func parseMillis(text string) time.Time {
	if millis, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(millis).UTC()
	}
	return time.Time{}
}

// text is a failed attempt as it is kept, behind its time: texts separated by tabs.
func (a Attempt) text() string {
	return strings.Join([]string{string(a.Kind), a.Reason, a.Answer, strconv.FormatInt(a.Took.Milliseconds(), 10)}, "\t")
}

func parseAttempt(text string) (Attempt, bool) {
	const texts = 5
	parts := strings.Split(text, "\t")
	if len(parts) < texts {
		return Attempt{}, false
	}
	took, err := strconv.ParseInt(parts[4], 10, 64)
	return Attempt{
		At: parseMillis(parts[0]), Kind: v1alpha1.WebhookEvent(parts[1]), Reason: parts[2], Answer: parts[3], Took: time.Duration(took) * time.Millisecond,
	}, err == nil
}
