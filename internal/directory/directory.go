// Package directory knows whose key it is: it watches the published objects of the credentials
// namespace and indexes them by key digest, key id and merchant id. Look-ups are in memory and never
// wait for the Kubernetes API; when that is away, the directory answers with what it knew last.
// A published object that cannot be decoded opens nothing: what it said before is dropped.
package directory

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// Directory is the index of published objects. It is safe for concurrent use.
type Directory struct {
	mu        sync.RWMutex
	index     index
	announcer Announcer

	// Informers fill the index: Watch, Synced and Age are its own.
	*kube.Informers
}

// Options of a directory; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer takes the directory's metrics.
	Registerer prometheus.Registerer
	Announcer  Announcer
	// Now is the clock that Age goes by.
	Now func() time.Time
}

// New returns an empty directory that Watch fills.
func New(options Options) *Directory {
	d := &Directory{index: newIndex(), announcer: options.Announcer}
	d.Informers = kube.NewInformers(kube.Options{Log: options.Log, Registerer: options.Registerer, Now: options.Now}, d.sources()...)
	d.registerSizes(options.Registerer)
	return d
}

// registerSizes counts what is in the index at the time of asking.
func (d *Directory) registerSizes(registerer prometheus.Registerer) {
	for label, k := range map[string]func() int{
		"key":      func() int { return len(d.index.keys) },
		"merchant": func() int { return len(d.index.merchants) },
	} {
		promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "merchant_operator_directory_objects",
			Help:        "Published objects in the directory.",
			ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 {
			d.mu.RLock()
			defer d.mu.RUnlock()
			return float64(k())
		})
	}
}

// Why a presented key is nobody's. Callers of the API are not told which.
var (
	ErrUnknownKey      = errors.New("no published key has this digest or key id")
	ErrUnusableKey     = errors.New("the key is disabled or has expired")
	ErrUnknownMerchant = errors.New("the key's merchant is not published")
)

// Principal is who presented a key, as far as this replica knows.
type Principal struct {
	KeyID string
	// Generation and Order are of the published record.
	Generation int64
	Order      published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Live is the record's verdict on Digest. It is false for a key of a known key id whose digest
	// is not published here, or no longer: another replica may have just made it.
	Live bool
	// Prefix is of the presented key; empty for a key made elsewhere.
	Prefix string
	// CreatedAt is when the ApiKey was first published, to the second; RotatedAt is when its current
	// key was issued.
	CreatedAt, RotatedAt time.Time
	// ExpiresAt is nil for a key without an end.
	ExpiresAt *time.Time
	Merchant  *Merchant
}

// Merchant is what the directory keeps of a published merchant. It is shared and never changed.
type Merchant struct {
	// ID is the bare id, without the "mer_" callers see.
	ID          string
	DisplayName string
	State       v1alpha1.MerchantState
	// Allowlist are the blocks callers must be in; none: any address.
	Allowlist []netip.Prefix
	RateLimit v1alpha1.RateLimit
	Sessions  v1alpha1.SessionSettings
	// TellCreated: its webhook asks for session.created.
	TellCreated bool
}

// Active reports whether the merchant may use the API.
func (m *Merchant) Active() bool { return m.State == v1alpha1.MerchantActive }

// Allows reports whether the merchant's servers may call from the address.
func (m *Merchant) Allows(address netip.Addr) bool {
	return len(m.Allowlist) == 0 ||
		slices.ContainsFunc(m.Allowlist, func(block netip.Prefix) bool { return block.Contains(address) })
}

// Identify returns who presented a key at the time now. A key that is known by its key id alone is returned as well, not live,
// since another replica may have rotated it a moment ago. The digest is the secret here, so looking it up in a map tells a
// guesser nothing. Errors: ErrUnknownKey, ErrUnusableKey, ErrUnknownMerchant.
func (d *Directory) Identify(presented string, now time.Time) (Principal, error) {
	digest := apikey.DigestOf(presented)
	id, _ := apikey.IDOf(presented)
	d.mu.RLock()
	defer d.mu.RUnlock()

	found := d.index.find(id, digest)
	if found == nil {
		return Principal{}, ErrUnknownKey
	}
	var prefix string
	if id == found.id {
		prefix = apikey.PrefixOf(presented)
	}
	record := found.record()
	if !found.superseded && !record.Usable(now) { // what holds for a superseded record is for the override to say
		return Principal{}, ErrUnusableKey
	}
	merchant := d.index.merchants[found.merchant]
	if merchant == nil {
		return Principal{}, ErrUnknownMerchant
	}
	return found.principal(digest, prefix, merchant, record.Live(digest, now)), nil
}

// decodeMerchant reads a published merchant.
func decodeMerchant(configMap *corev1.ConfigMap) (*Merchant, error) {
	record, err := published.DecodeMerchant(configMap)
	if err != nil {
		return nil, err
	}
	allowlist, err := record.Allowlist()
	if err != nil {
		return nil, err
	}
	return &Merchant{
		ID:          record.MerchantID,
		DisplayName: record.DisplayName,
		State:       record.State,
		Allowlist:   allowlist,
		RateLimit:   record.RateLimit,
		Sessions:    record.Sessions,
		TellCreated: record.Webhook != nil && slices.Contains(record.Webhook.Events, v1alpha1.EventSessionCreated),
	}, nil
}
