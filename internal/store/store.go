package store

import (
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store/link"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Store is Redis. It is safe for concurrent use, and any number of them may share one Redis.
type Store struct {
	link      *link.Link
	settled   *copiedSettlements // nil: settlements travel like all else
	timeout   time.Duration
	retention time.Duration
	uses      *lastUses
	metrics   *metrics
	tracer    *tracing.Tracer
}

// Open returns a Store; it does not connect yet. link.Open tells the forms of the URL, and that no error quotes it.
func Open(options Options) (*Store, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	opened, err := link.Open(link.Options{URL: options.URL, Timeout: options.Timeout, PoolSize: options.PoolSize})
	if err != nil {
		return nil, err
	}
	settled, err := openSettlements(options)
	if err != nil {
		_ = opened.Close()
		return nil, err
	}
	link.LogTo(options.Log)
	return &Store{
		link:      opened,
		settled:   settled,
		timeout:   options.Timeout,
		retention: options.SessionRetention,
		uses:      newLastUses(),
		metrics:   newMetrics(options.Registerer),
		tracer:    options.Tracer,
	}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return errors.Join(s.link.Close(), s.settled.close()) }
