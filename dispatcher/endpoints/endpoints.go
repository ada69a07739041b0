package endpoints

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// Endpoints is the index of all merchants' endpoints. It is safe for concurrent use.
type Endpoints struct {
	mu        sync.RWMutex
	merchants map[string]published.MerchantRecord // by the name of the published object
	spoilt    map[string]bool                     // names of published merchants that cannot be decoded
	withdrawn map[string]bool                     // names of tombstones of merchants
	secrets   map[string]published.WebhookRecord  // by the name of the published object
	rotations rotations

	now func() time.Time

	// Informers fill the index: Watch, Synced and Age are its own.
	*kube.Informers
}

// Options of Endpoints; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer takes the metrics of the informers.
	Registerer prometheus.Registerer
	// Rotated is told of every key that was ever rotated, when it is first seen and whenever it
	// changes, with the name payers see of its merchant. It holds up the watch and the index: it must
	// be quick, and not ask the index anything.
	Rotated func(key published.KeyRecord, merchantName string)
	// Now is the clock of overlaps and of Age.
	Now func() time.Time
}

// New returns an empty index that Watch fills.
func New(options Options) *Endpoints {
	e := &Endpoints{
		merchants: map[string]published.MerchantRecord{},
		spoilt:    map[string]bool{},
		withdrawn: map[string]bool{},
		secrets:   map[string]published.WebhookRecord{},
		rotations: rotations{tell: options.Rotated, waiting: map[string]map[string]published.KeyRecord{}},
		now:       options.Now,
	}
	e.Informers = kube.NewInformers(kube.Options{Log: options.Log, Registerer: options.Registerer, Now: options.Now}, e.sources()...)
	return e
}

// Endpoint returns where the events of a merchant go. One without a webhook has an Endpoint that wants nothing.
func (e *Endpoints) Endpoint(merchantID string) Endpoint {
	e.mu.RLock()
	defer e.mu.RUnlock()
	name := published.MerchantName(merchantID)
	merchant, known := e.merchants[name]
	switch {
	case known:
		return e.endpointOf(merchant)
	case e.spoilt[name]:
		return Endpoint{State: Unreadable}
	case e.withdrawn[published.MerchantTombstoneName(merchantID)]:
		return Endpoint{State: Withdrawn}
	}
	return Endpoint{}
}

// All returns the endpoints of all merchants that have a webhook.
func (e *Endpoints) All() []Endpoint {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var all []Endpoint
	for _, merchant := range e.merchants {
		if merchant.Webhook != nil {
			all = append(all, e.endpointOf(merchant))
		}
	}
	return all
}

func (e *Endpoints) endpointOf(merchant published.MerchantRecord) Endpoint {
	found := Endpoint{
		State:        Published,
		MerchantID:   merchant.MerchantID,
		MerchantName: merchant.DisplayName,
		Merchant:     types.NamespacedName{Namespace: merchant.Namespace, Name: merchant.Name},
		UID:          merchant.UID,
	}
	if merchant.Webhook == nil {
		return found
	}
	found.URL = merchant.Webhook.URL
	found.Target = target(*merchant.Webhook)
	found.events = merchant.Webhook.Events
	if signing, ok := e.secrets[published.WebhookName(merchant.MerchantID)]; ok {
		found.Secrets = signing.SigningSecrets(e.now())
	}
	return found
}
