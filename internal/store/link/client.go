package link

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options of a link; only PoolSize may be 0.
type Options struct {
	// URL says where Redis is; see Open for its forms. It may hold a password: it is never logged.
	URL string
	// Timeout bounds each command, waiting for a connection included; twice that, when it had to wait for others before it.
	Timeout time.Duration
	// PoolSize is the number of connections to each Redis server. 0: 10 per CPU, 5 per CPU to each server
	// of a Redis Cluster.
	PoolSize int
}

// Link sends commands. It is safe for concurrent use.
type Link struct {
	// Client is for what is not said on behalf of a request.
	Client redis.UniversalClient

	timeout time.Duration
	lanes   *lanes // nil: each command travels on its own
}

// Open returns a link; it does not connect yet. The forms of the URL are
//
//	redis://[user:password@]host:port/db                            one server
//	redis+sentinel://host:port/db?master_name=name&addr=host2:port2 Sentinels, any number of addr
//	redis+cluster://[user:password@]host:port?addr=host2:port2      servers of a Redis Cluster
//
// and the same with rediss for TLS. The user and password of the Sentinel form are for the
// Sentinels; the parameters username and password are for Redis behind them. An error never quotes
// the URL, for it may hold a password.
func Open(options Options) (*Link, error) {
	target, err := parseURL(options.URL)
	if err != nil {
		return nil, err
	}
	if options.Timeout < time.Millisecond {
		return nil, errors.New("redis timeout: must be at least 1 ms")
	}
	if options.PoolSize < 0 {
		return nil, errors.New("redis pool size: must not be negative")
	}
	client := newClient(target, options)
	l := &Link{Client: client, timeout: options.Timeout}
	if !target.IsClusterMode {
		l.lanes = newLanes(client, options.Timeout)
	}
	return l, nil
}

// Process sends a command and returns its error once it is answered, or Options.Timeout has passed; the answer is in the
// command. Nothing is ever sent a second time, but where a Redis Cluster says that it ran nothing and who will. When ctx ends first the command
// may have been run or not, and must not be looked at again.
func (l *Link) Process(ctx context.Context, command *redis.Cmd) error {
	once := sentOnce{command}
	if l.lanes == nil {
		ctx, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		return l.Client.Process(ctx, once)
	}
	return l.lanes.process(ctx, once)
}

// Close closes the connections.
func (l *Link) Close() error { return l.Client.Close() }

// mostRedirects is how often a command follows a slot of a Redis Cluster.
const mostRedirects = 3

// sentOnce is a command the client must not send again after its connection failed, for it may have
// been run. Redirections of a Redis Cluster are followed: the server that gives them ran nothing.
type sentOnce struct{ *redis.Cmd }

// NoRetry is asked by the client before it sends a command again.
func (sentOnce) NoRetry() bool { return true }

// newClient makes a client that gives up in time and never sends a command a second time by itself.
// Most of these settings replace defaults that wait for seconds or retry.
func newClient(target *redis.UniversalOptions, options Options) redis.UniversalClient {
	target.ContextTimeoutEnabled = true
	target.DialTimeout = options.Timeout
	target.ReadTimeout = options.Timeout
	target.WriteTimeout = options.Timeout
	target.PoolTimeout = options.Timeout
	target.MaxRetries = -1
	target.DialerRetries = 1
	target.MaxRedirects = mostRedirects // follows slots that move; see sentOnce
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
