package directory

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/apikey"
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
