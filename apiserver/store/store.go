package store

import "context"

// Store is Redis. It is safe for concurrent use, and any number of them may share one Redis.
type Store struct{}

// Open returns a Store; it does not connect yet. The forms of the URL are
//
//	redis://[user:password@]host:port/db                             one server; rediss:// for TLS
//	redis+sentinel://host:port/db?master_name=m&addr=host2:port2     Sentinels; rediss+sentinel:// for TLS
//	redis+cluster://[user:password@]host:port?addr=host2:port2       a Redis Cluster; rediss+cluster:// for TLS
//
// with further options as go-redis names them. Those that would resend a script are overruled. An
// error never quotes the URL, for it may hold a password.
func Open(options Options) (*Store, error) { return &Store{}, nil }

// Close closes the connections.
func (s *Store) Close() error { return nil }

// Check reports whether Redis answers and keeps what it is given. Errors: ErrUnavailable, and
// ErrEviction when Redis says that it may evict keys. A server that does not tell its policy
// passes: see EvictionPolicy.
func (s *Store) Check(ctx context.Context) error { return ErrUnavailable }

// EvictionPolicy returns the maxmemory-policy of Redis, empty when it does not tell, which managed
// services do. The error is ErrUnavailable.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) { return "", ErrUnavailable }
