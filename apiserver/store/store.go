package store

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/merchant-operator/merchant-operator/apiserver/tracing"
)

// Store is Redis. It is safe for concurrent use, and any number of them may share one Redis.
type Store struct {
	client    redis.UniversalClient
	timeout   time.Duration
	retention time.Duration
	metrics   *metrics
	tracer    *tracing.Tracer
}

// Open returns a Store; it does not connect yet. The forms of the URL are
//
//	redis://[user:password@]host:port/db                            one server
//	redis+sentinel://host:port/db?master_name=name&addr=host2:port2 Sentinels, any number of addr
//	redis+cluster://[user:password@]host:port?addr=host2:port2      servers of a Redis Cluster
//
// and the same with rediss for TLS. The user and password of the Sentinel form are for the
// Sentinels; the parameters username and password are for Redis behind them. An error never quotes
// the URL, for it may hold a password.
func Open(options Options) (*Store, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	target, err := parseURL(options.URL)
	if err != nil {
		return nil, err
	}
	return &Store{
		client:    newClient(target, options),
		timeout:   options.Timeout,
		retention: options.SessionRetention,
		metrics:   newMetrics(options.Registerer),
		tracer:    options.Tracer,
	}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// newClient makes a client that gives up in time and never sends a script a second time by itself.
// Most of these settings replace defaults that wait for seconds or retry.
func newClient(target *redis.UniversalOptions, options Options) redis.UniversalClient {
	target.ContextTimeoutEnabled = true
	target.DialTimeout = options.Timeout
	target.ReadTimeout = options.Timeout
	target.WriteTimeout = options.Timeout
	target.PoolTimeout = options.Timeout
	target.MaxRetries = -1
	target.DialerRetries = 1
	target.MaxRedirects = 3 // follows slots that move; see sentOnce
	target.PoolSize = options.PoolSize

	// What is not used should not cost handshakes, memory or a look at the socket per request.
	target.Protocol = 2
	target.DisableIdentity = true
	target.PipelinePoolSize = -1
	target.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	switch {
	case target.IsClusterMode:
		cluster := target.Cluster()
		cluster.DisableRoutingPolicies = true // they ask the server about each command, with a timeout of their own
		return redis.NewClusterClient(cluster)
	case target.MasterName != "":
		return redis.NewFailoverClient(target.Failover())
	default:
		return redis.NewClient(target.Simple())
	}
}
