// Package status reports to the owners of merchants what happens to them, through the Kubernetes API: the health of webhooks, blocked addresses,
// last uses of keys. It reads what others have left in Redis, and delivers nothing.
package status

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Index knows what is published of merchants and keys.
type Index interface {
	Endpoint(merchantID string) endpoints.Endpoint
	MerchantIDs(bucket session.Bucket) []string
	Allowlist(merchantID string) allowlist.List
	KeyIDs(bucket session.Bucket) []string
	HasKey(keyID string) bool
	// Age is how long ago the watches gave the last sign of life.
	Age() time.Duration
}

// Writer writes to the Kubernetes API. With ErrMerchantGone the Merchant of an endpoint does not exist any more.
type Writer interface {
	// Report writes the health of an endpoint into its Merchant's status.
	Report(ctx context.Context, endpoint endpoints.Endpoint, report Report) error
	// ReportTest writes that the test of an endpoint was queued.
	ReportTest(ctx context.Context, endpoint endpoints.Endpoint) error
	// ReportAllowlist writes what the allowlist of an endpoint's merchant has refused.
	ReportAllowlist(ctx context.Context, endpoint endpoints.Endpoint, refused *v1alpha1.AllowlistStatus) error
	// LastUses returns the published last uses of a shard.
	LastUses(ctx context.Context, shard int) (published.LastUses, error)
	// UpdateLastUses gives next the published last uses of a shard, and writes those that it returns, if it asks for that.
	UpdateLastUses(ctx context.Context, shard int, next func(current published.LastUses) (published.LastUses, bool)) error
}

// Options of a Reporter; all without a default are required.
type Options struct {
	Outbox  *outbox.Outbox
	Keys    *keystate.Store
	Redis   *redis.Client
	Blocked *blocked.Store
	Index   Index
	Writer  Writer
	// Refusal returns what each attempt at a URL would find, if none is possible.
	Refusal func(url string) (delivery.Result, bool)
	// Changes are those that Index has seen.
	Changes *Changes
	// HealthChanged starts a report of health at once.
	HealthChanged loop.Signal
	// HealthInterval is the time between two reports of health without a change that is known here. Default 4 s.
	HealthInterval time.Duration
	// PublishUsesInterval is the time between two rounds that publish last uses of keys.
	PublishUsesInterval time.Duration
	// LastUseStep is how much later a use must be than the published one to be published, and how old the published ones may get.
	LastUseStep time.Duration
	Log         *loop.Log
	Registerer  prometheus.Registerer
	Now         func() time.Time
}

// Reporter is one of any number that share a Redis: each finds there what the others have reported.
type Reporter struct {
	outbox              *outbox.Outbox
	keys                *keystate.Store
	redis               *redis.Client
	blocked             *blocked.Store
	index               Index
	writer              Writer
	refusal             func(url string) (delivery.Result, bool)
	changes             *Changes
	healthChanged       loop.Signal
	healthInterval      time.Duration
	publishUsesInterval time.Duration
	lastUseStep         time.Duration
	log                 *loop.Log
	metrics             *metrics
	now                 func() time.Time
	// started is when the rules of this Reporter were read.
	started time.Time

	// lastReported is the namespace of the last report of health: the next round begins behind it.
	lastReported string
	// lastChanged is the same for changes.
	lastChanged string
	// lastBlocked is the same for blocked addresses, by the first bucket of the round: in other buckets are other namespaces.
	lastBlocked [session.Buckets]string
	// nextBlocked and nextRefresh are the buckets with which the next round of reports begins.
	nextBlocked, nextRefresh session.Bucket

	lastUses lastUses
	retries  retries
}

// New returns a Reporter that does not run yet.
func New(o Options) *Reporter {
	return &Reporter{
		outbox: o.Outbox, keys: o.Keys, redis: o.Redis, blocked: o.Blocked, index: o.Index, writer: o.Writer, refusal: o.Refusal, changes: o.Changes, healthChanged: o.HealthChanged,
		healthInterval:      cmp.Or(o.HealthInterval, 4*time.Second),
		publishUsesInterval: o.PublishUsesInterval, lastUseStep: o.LastUseStep, log: o.Log, metrics: newMetrics(o.Registerer), now: o.Now, started: o.Now(),
	}
}

const changesInterval = time.Second

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	loop.Run(ctx, r.log,
		loop.Loop{Interval: r.healthInterval, Wake: r.healthChanged, Step: r.reportHealth},
		loop.Loop{Interval: refreshInterval, Step: r.refreshHealth},
		loop.Loop{Interval: changesInterval, Wake: r.changes.added, Step: r.handleChanges},
		loop.Loop{Interval: r.publishUsesInterval, Step: r.publishLastUses},
	)
}
