// Package directory finds the owner of an API key. It watches the published objects of the credentials namespace and indexes
// them in memory by key digest, key id and merchant id. While the Kubernetes API is unavailable it serves what it knew last. A
// published object that cannot be decoded is dropped.
package directory

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// Directory is the index of published objects. It is safe for concurrent use.
type Directory struct {
	mu         sync.RWMutex
	index      index
	keyHandler KeyHandler

	// Informers fill the index. They provide Watch, Synced and Age.
	*kube.Informers
}

// Options of a directory; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer is for the directory's metrics.
	Registerer prometheus.Registerer
	KeyHandler KeyHandler
	// Now is the clock of Age.
	Now func() time.Time
}

// New returns an empty directory that Watch fills.
func New(options Options) *Directory {
	d := &Directory{index: newIndex(), keyHandler: options.KeyHandler}
	d.Informers = kube.NewInformers(kube.Options{Log: options.Log, Registerer: options.Registerer, Now: options.Now}, d.sources()...)
	d.registerSizes(options.Registerer)
	return d
}

// registerSizes registers the number of keys and merchants.
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

// Why Identify refuses a key. Callers of the API do not see the reason.
var (
	ErrUnknown         = errors.New("no published API key has this digest or key id")
	ErrDigestClaimed   = errors.New("the API key that holds the claim to this digest is not published")
	ErrMerchantMissing = errors.New("the merchant of the API key is not published, or was deleted")
	ErrDisabled        = errors.New("the API key is disabled")
	ErrExpired         = errors.New("the API key has expired")
	// ErrNewerVersion: a newer program wrote the record of the key or of its merchant, and this one has never read another. The key may
	// be good: this is no reason for a 401.
	ErrNewerVersion = errors.New("a newer version wrote the published object of the API key or its merchant")
	// ErrWrongMode: somebody has claimed the digest of a generated key for an ApiKey of the other mode.
	ErrWrongMode = errors.New("the label of the API key is of another mode than its ApiKey")
)

// Reasons of a refused key. They label a metric and a log line, and kubectl merchant explains them; callers of the API never see them.
const (
	ReasonMalformed         = "malformed"
	ReasonUnknown           = "unknown"
	ReasonRotated           = "rotated" // Identify succeeds with a Principal that is not live
	ReasonExpired           = "expired"
	ReasonDisabled          = "disabled"
	ReasonMerchantMissing   = "merchant_missing"
	ReasonAddressNotAllowed = "address_not_allowed" // Principal.Allows
	ReasonDigestClaimed     = "digest_claimed"
	ReasonWrongMode         = "wrong_mode"
)

// UnauthorizedReason returns why Identify refuses a presented key.
func UnauthorizedReason(presented string, err error) string {
	switch {
	case errors.Is(err, ErrMerchantMissing):
		return ReasonMerchantMissing
	case errors.Is(err, ErrDisabled):
		return ReasonDisabled
	case errors.Is(err, ErrExpired):
		return ReasonExpired
	case errors.Is(err, ErrDigestClaimed):
		return ReasonDigestClaimed
	case errors.Is(err, ErrWrongMode):
		return ReasonWrongMode
	case apikey.Mistyped(presented):
		return ReasonMalformed
	}
	return ReasonUnknown
}

// Principal is the key and merchant that a request belongs to, as far as this replica knows.
type Principal struct {
	KeyID string
	// Generation and Order are of the published record.
	Generation int64
	Order      published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Accepted: the record accepts Digest until Until, which may have passed; zero: without an end. It is false for a known key id with
	// another digest: a replica may have just issued it.
	Accepted bool
	Until    time.Time
	// Live: Accepted, and Until has not passed by this replica's clock, which decides nothing.
	Live bool
	// Current reports whether an accepted Digest is the current one, not in its overlap.
	Current bool
	// TestMode: it is a test key, so it has no part in live sessions.
	TestMode bool
	// Prefix is of the presented key; empty for an externally generated key.
	Prefix string
	// CreatedAt is when the ApiKey was first published, to the second; RotatedAt is when its current key was issued.
	CreatedAt, RotatedAt time.Time
	// ExpiresAt is nil for a key that does not expire.
	ExpiresAt *time.Time
	// Permissions are what the key may do.
	Permissions Permissions
	// Allowlist narrows that of the merchant.
	Allowlist allowlist.List
	Merchant  *Merchant
}

// Allows reports whether the key is accepted from an address in the form of clientaddr: the lists of key and merchant both allow it.
func (p Principal) Allows(address netip.Addr) bool {
	return p.Merchant.Allowlist.Allows(address) && p.Allowlist.Allows(address)
}

// Merchant is what the directory keeps of a published merchant. It is shared and immutable.
type Merchant struct {
	// ID is the id without "mer_".
	ID string
	// Namespace and Name are of the Merchant.
	Namespace, Name string
	DisplayName     string
	State           v1alpha1.MerchantState
	// Currency is that of new sessions, an ISO 4217 code.
	Currency string
	// TimeZone is an IANA name, such as Europe/Berlin.
	TimeZone  string
	Allowlist allowlist.List
	// ReportOnly: requests from addresses that are not on the allowlist are counted, not refused.
	ReportOnly bool
	RateLimit  v1alpha1.RateLimit
	Sessions   v1alpha1.SessionSettings
	Page       v1alpha1.PageSettings
	// EmitCreated: its webhook subscribes to session.created.
	EmitCreated bool

	// Unreadable: a newer program wrote it, and only its envelope is known.
	Unreadable bool
}

// Active reports whether the merchant may use the API.
func (m *Merchant) Active() bool { return m.State == v1alpha1.MerchantActive }

// Identify returns the owner of a key. A key with a known key id and another digest is returned too, not accepted, because another replica
// may have just rotated it. One that has ended is returned because now is one replica's clock. The map lookup leaks nothing: it is
// by digest, which a guesser cannot choose. With ErrMerchantMissing, ErrDisabled and ErrWrongMode the Principal has key id and mode, with
// ErrExpired all but Live.
func (d *Directory) Identify(presented string, now time.Time) (Principal, error) {
	digest := apikey.NewDigest(presented)
	id, _ := apikey.ParseID(presented)
	d.mu.RLock()
	defer d.mu.RUnlock()

	found := d.index.find(id, digest)
	if found == nil {
		if d.index.contested[digest] != nil {
			return Principal{}, ErrDigestClaimed
		}
		return Principal{}, ErrUnknown
	}
	found = found.judged()
	var prefix string
	if id == found.id {
		prefix = apikey.Prefix(presented)
	}
	rejected := Principal{KeyID: found.id, TestMode: found.test}
	if labelled, test := apikey.Labelled(presented); labelled && test != found.test {
		return rejected, ErrWrongMode
	}
	merchant := d.index.merchant(found.merchant)
	if merchant == nil { // first: the operator disables the keys of a Merchant that is deleted
		return rejected, ErrMerchantMissing
	}
	if found.disabled && !found.superseded { // for a superseded record the override decides
		return rejected, ErrDisabled
	}
	record := found.record()
	expired := !found.superseded && !record.Usable(now)
	switch {
	case !found.unreadable && !merchant.Unreadable:
	case expired:
		return rejected, ErrExpired
	default: // whatever the digest: it may be in an overlap, or just issued by another replica
		return rejected, ErrNewerVersion
	}
	principal := found.principal(digest, prefix, merchant)
	principal.Until, principal.Accepted = found.acceptedUntil(&record, digest)
	principal.Live = principal.Accepted && (principal.Until.IsZero() || now.Before(principal.Until))
	principal.Current = principal.Accepted && record.Current.Digest.Equal(digest)
	if expired {
		return principal, ErrExpired
	}
	return principal, nil
}

// Accepts reports whether a request with a key of that id can pass. It is true for a record that this replica alone does not decide about: one
// that was restored, or that a newer version wrote.
func (d *Directory) Accepts(id string, now time.Time) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	k := d.index.keys[published.KeyName(id)]
	if _, was := d.index.ended[id]; was || k == nil || d.index.merchant(k.merchant) == nil {
		return false
	}
	k = k.judged()
	return k.superseded || (k.record().Usable(now) && len(k.accepted()) > 0)
}

// HasKey reports whether a key with an id is published, usable or not.
func (d *Directory) HasKey(id string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.index.keys[published.KeyName(id)] != nil
}

// Merchant returns the merchant with an id, nil if it is not published, was deleted, or cannot be read.
func (d *Directory) Merchant(id string) *Merchant {
	d.mu.RLock()
	defer d.mu.RUnlock()
	merchant := d.index.merchant(unique.Make(id))
	if merchant == nil || merchant.Unreadable {
		return nil
	}
	return merchant
}

// MerchantDeleted reports whether the merchant with an id was deleted: the operator has published its tombstone. One that is not
// published, or cannot be read, may be good. What is published of it besides does not count, as that may be what a stale watch has left.
func (d *Directory) MerchantDeleted(id string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.index.deleted[id]
}

// decodeMerchant reads a published merchant. With ErrNewerVersion it returns what the envelope says, or nil.
func decodeMerchant(configMap *corev1.ConfigMap) (*Merchant, error) {
	record, err := published.DecodeMerchant(configMap)
	if errors.Is(err, published.ErrNewerVersion) {
		if envelope, envelopeErr := published.DecodeMerchantEnvelope(configMap); envelopeErr == nil {
			merchant := newMerchant(envelope)
			merchant.Unreadable = true
			return merchant, err
		}
	}
	if err != nil {
		return nil, err
	}
	return newMerchant(record), nil
}

func newMerchant(record published.MerchantRecord) *Merchant {
	allowed, _ := allowlist.Parse(record.IPAllowlist) // a decoded one is valid
	var page v1alpha1.PageSettings
	if record.Page != nil {
		page = *record.Page
	}
	return &Merchant{
		ID:          record.MerchantID,
		Namespace:   record.Namespace,
		Name:        record.Name,
		DisplayName: record.DisplayName,
		State:       record.EffectiveState(),
		Currency:    string(record.Currency),
		TimeZone:    string(cmp.Or(record.TimeZone, v1alpha1.DefaultTimeZone)),
		Allowlist:   allowed,
		ReportOnly:  record.IPAllowlistMode == v1alpha1.IPAllowlistReport,
		RateLimit:   record.RateLimit,
		Sessions:    record.Sessions,
		Page:        page,
		EmitCreated: record.Webhook != nil && slices.Contains(record.Webhook.Events, v1alpha1.EventSessionCreated),
	}
}
