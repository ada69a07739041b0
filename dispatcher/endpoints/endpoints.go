// Package endpoints knows, from the published objects, where each merchant's events go and which secrets sign them. It
// also reports rotated keys and changed endpoints. It stores nothing but this index and sends nothing.
package endpoints

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// MaxAge is how old the index may be for decisions that lose something. An idle watch gets a bookmark about once a minute.
const MaxAge = 5 * time.Minute

// State says what is published of a merchant.
type State int

// States of a merchant.
const (
	// Unknown: nothing is published. The merchant may be new, or its published object is lost.
	Unknown State = iota
	Published
	// Undecodable: its published object is damaged or of a newer version.
	Undecodable
	// Withdrawn: the Merchant was deleted; the operator has published a tombstone.
	Withdrawn
)

// Endpoint is where one merchant's events go. All but State is empty unless that is Published.
type Endpoint struct {
	State State
	// MerchantID is the bare id, without "mer_"; MerchantName is the name payers see.
	MerchantID, MerchantName string
	// Merchant is the object whose status has the health of the endpoint. UID distinguishes it from another object of
	// the same name.
	Merchant types.NamespacedName
	UID      types.UID

	// TimeZone is what "today" is for the merchant; empty: nobody knows.
	TimeZone v1alpha1.TimeZone

	// URL is empty for a merchant without a webhook.
	URL string
	// Secrets sign, the newest first; none until the operator has created one.
	Secrets []published.SigningSecret
	// Target changes with the URL and with spec.webhook.resumeTrigger: the state of an endpoint belongs to one target.
	Target string
	// Generation is the Merchant's: of two targets the one of the higher generation is the newer. 0: an older operator did not publish it.
	Generation int64
	// TestTrigger asks for a test of the endpoint; empty: there is none to make.
	TestTrigger string
	// RemovedAt is when the merchant's webhook was removed; zero: it has one, or never had one. Dropped: its events wait for another
	// one no longer.
	RemovedAt time.Time
	Dropped   bool

	events []v1alpha1.WebhookEvent
}

// Noted is the target as Redis is to note it, with the Age of the index when the endpoint was read. A watch may be behind by MaxAge without any sign
// of it.
func (e Endpoint) Noted(age time.Duration) outbox.Target {
	return outbox.Target{ID: e.Target, Generation: e.Generation, Lag: age + MaxAge}
}

// Wants reports whether the merchant gets events of the kind.
func (e Endpoint) Wants(kind v1alpha1.WebhookEvent) bool { return e.URL != "" && kind.Listed(e.events) }

// Awaits reports whether events of the kind wait for another webhook, because that of the merchant was removed.
func (e Endpoint) Awaits(kind v1alpha1.WebhookEvent) bool {
	return !e.RemovedAt.IsZero() && !e.Dropped && kind.Listed(e.events)
}

// Endpoints is the index of all merchants' endpoints. It is safe for concurrent use.
type Endpoints struct {
	mu          sync.RWMutex
	merchants   map[string]published.MerchantRecord // by the name of the published object
	undecodable map[string]bool                     // names of published merchants
	withdrawn   map[string]bool                     // names of tombstones of merchants
	secrets     map[string]published.WebhookRecord  // by the name of the published object
	keys        map[string]string                   // merchant ids, by the name of the key's published object
	rotations   rotations
	changed     func(merchantID string)
	refused     func(url string) bool

	now func() time.Time

	// Informers fill the index and provide Watch, Synced and Age.
	*kube.Informers
}

// Options of Endpoints; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer takes the metrics of the informers.
	Registerer prometheus.Registerer
	// Rotated is called for each key with a rotation when it is first seen and when it changes, with the name payers
	// see of its merchant. It blocks the watch and the index: it must be quick and must not call the index.
	Rotated func(key published.KeyRecord, merchantName string)
	// Refused reports whether no event can be sent to a URL.
	Refused func(url string) bool
	// Changed is called with a bare merchant id when the endpoint of a known merchant gets another target or none, and for
	// each version with a TestTrigger or a URL that is refused. What is said of Rotated holds here too.
	Changed func(merchantID string)
	// Now is the clock of overlaps and of Age.
	Now func() time.Time
}

// New returns an empty index, which Watch fills.
func New(options Options) *Endpoints {
	e := &Endpoints{
		merchants:   map[string]published.MerchantRecord{},
		undecodable: map[string]bool{},
		withdrawn:   map[string]bool{},
		secrets:     map[string]published.WebhookRecord{},
		keys:        map[string]string{},
		rotations:   rotations{report: options.Rotated, waiting: map[string]map[string]published.KeyRecord{}},
		changed:     options.Changed,
		refused:     options.Refused,
		now:         options.Now,
	}
	e.Informers = kube.NewInformers(kube.Options{Log: options.Log, Registerer: options.Registerer, Now: options.Now}, e.sources()...)
	return e
}

// Endpoint returns where the events of a merchant go.
func (e *Endpoints) Endpoint(merchantID string) Endpoint {
	e.mu.RLock()
	defer e.mu.RUnlock()
	name := published.MerchantName(merchantID)
	merchant, known := e.merchants[name]
	switch {
	case known:
		return e.endpoint(merchant)
	case e.undecodable[name]:
		return Endpoint{State: Undecodable}
	case e.withdrawn[published.MerchantTombstoneName(merchantID)]:
		return Endpoint{State: Withdrawn}
	}
	return Endpoint{}
}

// Allowlist returns the allowlist of a published merchant.
func (e *Endpoints) Allowlist(merchantID string) allowlist.List {
	e.mu.RLock()
	defer e.mu.RUnlock()
	list, _ := allowlist.Parse(e.merchants[published.MerchantName(merchantID)].IPAllowlist) // decoded records are valid
	return list
}

func (e *Endpoints) endpoint(merchant published.MerchantRecord) Endpoint {
	endpoint := Endpoint{
		State:        Published,
		MerchantID:   merchant.MerchantID,
		MerchantName: merchant.DisplayName,
		TimeZone:     merchant.TimeZone,
		Merchant:     types.NamespacedName{Namespace: merchant.Namespace, Name: merchant.Name},
		UID:          merchant.UID,
		Generation:   merchant.Generation,
	}
	if merchant.Webhook == nil {
		return endpoint
	}
	endpoint.URL = merchant.Webhook.URL
	endpoint.RemovedAt, endpoint.Dropped = merchant.Webhook.RemovedAt, merchant.Webhook.Dropped
	endpoint.Target = merchant.Webhook.Target()
	endpoint.TestTrigger = merchant.Webhook.TestTrigger
	endpoint.events = merchant.Webhook.Events
	if record, ok := e.secrets[published.WebhookName(merchant.MerchantID)]; ok {
		endpoint.Secrets = record.SigningSecrets(e.now())
	}
	return endpoint
}
