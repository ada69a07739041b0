package dispatcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/dispatcher/receipts"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/role"
)

// Options configure Run. Start from DefaultOptions; only RedisURL has no default.
type Options struct {
	// Options are those of every role.
	role.Options

	// CredentialsNamespace has the published objects. Default merchant-operator-credentials.
	CredentialsNamespace string

	// AllowHTTP allows endpoints over plain HTTP. Default: https only.
	AllowHTTP bool
	// Egress says which endpoints are allowed besides public addresses, and which are refused. Default: none besides, and
	// egress.DefaultDeny and egress.DefaultDenyDomains refused.
	Egress egress.Rules

	// Lease is how long an event may be kept here. Default 30 s. It must be longer than an attempt; the rest is how long the event may wait for
	// its attempt. A dispatcher that was killed delays its events less, see package holder.
	Lease time.Duration
	// Concurrency bounds the attempts in progress to one endpoint. Default 8.
	Concurrency int
	// MaxInFlight bounds the attempts in progress to all endpoints. Default 512.
	MaxInFlight int
	// Schedule is when an event is tried. Default DefaultSchedule.
	Schedule Schedule
	// FailingLimit is how long an endpoint may only fail before it is disabled. Default 120 h.
	FailingLimit time.Duration

	// MaxPending is how many events of an account wait for delivery at most. Beyond it, those that are due first become dead letters.
	// Default 100,000; 10,000 in test mode.
	MaxPending int64

	// History is how much of each merchant's feed is kept. Default 7 days and 1,000,000 events.
	History feed.History

	// MailServer takes receipts. Default none.
	MailServer MailServer

	// PublishUsesInterval is the time between two rounds that publish last uses of keys. Default 1 min.
	PublishUsesInterval time.Duration
	// LastUseStep is how exact the published last uses are; API replicas record uses in the same steps. Default 10 min.
	LastUseStep time.Duration
}

// MailServer says which mail server takes receipts.
type MailServer = receipts.ServerOptions

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	shared := role.DefaultOptions()
	shared.RedisTimeout = redisTimeout
	return Options{
		Options:              shared,
		CredentialsNamespace: "merchant-operator-credentials",
		Egress:               egress.Rules{Deny: egress.DefaultDeny(), DenyDomains: egress.DefaultDenyDomains()},
		Lease:                30 * time.Second,
		Concurrency:          8,
		MaxInFlight:          512,
		Schedule:             DefaultSchedule(),
		FailingLimit:         120 * time.Hour,
		MaxPending:           outbox.DefaultMaxPending,
		History:              feed.History{}.WithDefaults(),
		PublishUsesInterval:  time.Minute,
		LastUseStep:          published.LastUseStep,
	}
}

// redisTimeout is longer than the API's, whose callers wait: events whose lease was granted in an answer that comes
// too late wait until it ends. A result can be recorded again within the margin.
const redisTimeout = time.Second

// minLease leaves an event a second to wait for its attempt.
const minLease = attempt.MaxDuration + time.Second

// Validate says which option is wrong, by its flag.
func (o Options) Validate() error {
	if err := o.Options.Validate(); err != nil {
		return err
	}
	switch {
	case o.Lease < minLease:
		return fmt.Errorf("--lease must be at least %s: an attempt takes up to %s", minLease, delivery.Timeout)
	case o.Concurrency < 1:
		return errors.New("--webhook-concurrency must be at least 1")
	case o.MaxInFlight < 1:
		return errors.New("--webhook-max-in-flight must be at least 1")
	case o.FailingLimit <= 0:
		return errors.New("--webhook-failing-limit must be positive")
	case o.MaxPending < 1:
		return errors.New("--webhook-max-pending must be at least 1")
	case o.PublishUsesInterval <= 0 || o.LastUseStep <= 0:
		return errors.New("PublishUsesInterval and LastUseStep must be positive")
	}
	return errors.Join(kube.CheckNamespace("--credentials-namespace", o.CredentialsNamespace), o.Schedule.validate(), o.History.Validate(),
		o.MailServer.Validate())
}

// Schedule is when an event is tried: the first entry is 0, each other one the time after the previous attempt. When it
// is used up, the event becomes a dead letter.
type Schedule []time.Duration

// DefaultSchedule has eleven attempts in a little more than three days.
func DefaultSchedule() Schedule {
	return Schedule{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// Next returns the time to the next attempt after this many failed ones; false: there is none. It is the entry plus
// jitter, or the Retry-After of the endpoint if that is longer, but at most twice the entry. The fraction is in [0,1).
func (s Schedule) Next(failed int, retryAfter time.Duration, fraction float64) (time.Duration, bool) {
	if failed >= len(s) {
		return 0, false
	}
	step := s[failed]
	return max(jitter.Add(step, fraction), min(retryAfter, 2*step)), true
}

func (s Schedule) validate() error {
	if len(s) == 0 || s[0] != 0 {
		return errors.New("the retry schedule must begin with 0")
	}
	for _, step := range s {
		if step < 0 {
			return errors.New("the retry schedule must not have negative steps")
		}
	}
	return nil
}
