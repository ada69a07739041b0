// Package redis runs Lua scripts in Redis: connections, pipelining, scripts and their replies, the names of all keys. It is the
// only one that imports the Redis client, and knows nothing of what the scripts do.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Options configure a Client. Only URL is required.
type Options struct {
	// URL says where Redis is; see Open for its forms. It may hold a password: it is never logged.
	URL string
	// Timeout bounds each command, from the call to the answer: the wait in a queue and for a connection are part of it. A command
	// that a server did not run, because it does not know the script or has moved the slot, is sent again with as much time. Default 300 ms.
	Timeout time.Duration
	// PoolSize is the number of connections to each Redis server. Default 10 per CPU, 5 per CPU to each server of a Redis Cluster.
	PoolSize int
	// Replicas is how many replicas of Redis must acknowledge a script of RunReplicated. Default 0: the master alone.
	Replicas int
	// ReplicaTimeout is how long to wait for them, in addition to Timeout. Default 300 ms.
	ReplicaTimeout time.Duration
	// Log receives the Redis client's own messages. The client has one log for the whole process: that of the last Open.
	// Default: nothing is logged, as each operation returns its error.
	Log *slog.Logger
	// Registerer takes the metrics of the scripts. Default: nothing is counted.
	Registerer prometheus.Registerer
	// Tracer makes spans of the scripts. Default: none.
	Tracer *tracing.Tracer
}

const (
	defaultTimeout        = 300 * time.Millisecond
	defaultReplicaTimeout = 300 * time.Millisecond
)

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = defaultReplicaTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Timeout < time.Millisecond:
		return errors.New("redis timeout: must be at least 1 ms")
	case o.PoolSize < 0:
		return errors.New("redis pool size: must not be negative")
	case o.Replicas < 0:
		return errors.New("redis replicas: must not be negative")
	case o.ReplicaTimeout < time.Millisecond:
		return errors.New("redis replica timeout: must be at least 1 ms")
	}
	return nil
}

// Client runs scripts. It is safe for concurrent use, and any number of them may share one Redis.
type Client struct {
	client   redis.UniversalClient
	address  string            // of the server, or the name of the master at the Sentinels
	pipeline *pipeline         // to a single server
	cluster  *clusterPipelines // to the servers of a Redis Cluster; else nil
	replicas *replicated       // nil: no replica has to acknowledge anything
	timeout  time.Duration
	metrics  *metrics
	tracer   *tracing.Tracer
}

// Open returns a Client; it does not connect yet. The forms of the URL are
//
//	redis://[user:password@]host:port/db                            one server
//	redis+sentinel://host:port/db?master_name=name&addr=host2:port2 Sentinels, any number of addr
//	redis+cluster://[user:password@]host:port?addr=host2:port2      servers of a Redis Cluster
//
// and the same with rediss for TLS. The user and password of the Sentinel form are for the
// Sentinels; the parameters username and password are for Redis behind them. An error never quotes
// the URL, for it may hold a password.
func Open(options Options) (*Client, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	target, err := parseURL(options.URL)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(clientLog{options.Log})
	c := &Client{
		client:  newClient(target, options.Timeout, options.PoolSize),
		address: cmp.Or(target.MasterName, target.Addrs[0]),
		timeout: options.Timeout,
		metrics: newMetrics(options.Registerer),
		tracer:  options.Tracer,
	}
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		c.cluster = newClusterPipelines(cluster, options.Timeout)
	} else {
		c.pipeline = newPipeline(c.client, options.Timeout, runtime.GOMAXPROCS(0))
	}
	if options.Replicas > 0 {
		c.replicas = newReplicated(target, options)
	}
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() error { return errors.Join(c.client.Close(), c.replicas.close()) }

// Process sends a command and returns its error once it is answered, or Options.Timeout has passed; the answer is in the
// command. Nothing is ever sent a second time, except where a Redis Cluster says that it ran nothing and who will. When ctx ends
// first the command may have been run or not, and must not be read.
func (c *Client) Process(ctx context.Context, command *redis.Cmd) error {
	once := sentOnce{command}
	if c.cluster != nil {
		return c.cluster.process(ctx, once)
	}
	return c.pipeline.process(ctx, once)
}

// maxRedirects is how often a command follows a slot of a Redis Cluster.
const maxRedirects = 3

// sentOnce is a command the client must not send again after its connection failed, for it may have
// been run. Redirections of a Redis Cluster are followed: the server that gives them ran nothing.
type sentOnce struct{ *redis.Cmd }

// NoRetry is asked by the client before it sends a command again.
func (sentOnce) NoRetry() bool { return true }

// newClient makes a client that gives up in time and never repeats a command.
// Most of these settings replace defaults that wait for seconds or retry.
func newClient(target *redis.UniversalOptions, timeout time.Duration, poolSize int) redis.UniversalClient {
	target.ContextTimeoutEnabled = true
	target.DialTimeout = timeout
	target.Dialer = dialer(timeout, target.TLSConfig, func() *net.Resolver { return new(net.Resolver) })
	target.ReadTimeout = timeout
	target.WriteTimeout = timeout
	target.PoolTimeout = timeout
	target.MaxRetries = -1
	target.DialerRetries = 1
	target.MaxRedirects = maxRedirects // follows slots that move; see sentOnce
	target.PoolSize = poolSize

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
		// The client asks its Sentinel twice where the master is, before it closes that Sentinel and asks the others. If the time to dial was
		// over by then, it would keep the Sentinel and ask it again. The dialer bounds each connection, and a caller waits for its timeout only.
		target.DialTimeout = 2*timeout + timeout/3 // the third is for the others
		return redis.NewFailoverClient(target.Failover())
	default:
		return redis.NewClient(target.Simple())
	}
}

// dialer opens each connection with a resolver of its own. Callers of one resolver share a lookup, which goes on when one of them gives up: after
// one lost datagram all of them would wait for its five seconds.
func dialer(timeout time.Duration, config *tls.Config, resolver func() *net.Resolver) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain := &net.Dialer{Timeout: timeout, Resolver: resolver()}
		if config == nil {
			return plain.DialContext(ctx, network, address)
		}
		return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, address)
	}
}

// clientLog is the client's logger. The client has no levels to speak of; what it logs is mostly a connection that failed.
type clientLog struct{ log *slog.Logger }

// Printf logs a message of the client.
func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "message of the Redis client", "message", fmt.Sprintf(format, args...))
}

// Server names the server that has a key; empty: the only one, or it is not known yet. That a server does not answer says nothing about
// the keys of another.
func (c *Client) Server(ctx context.Context, key string) string {
	if c.cluster == nil {
		return ""
	}
	return c.cluster.address(ctx, key)
}

// Clustered reports whether keys of different buckets may be on different servers.
func (c *Client) Clustered() bool { return c.cluster != nil }

// metrics of the scripts, by operation. Nil metrics count nothing.
type metrics struct {
	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	if registerer == nil {
		return nil
	}
	factory := promauto.With(registerer)
	return &metrics{
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_redis_operation_duration_seconds",
			Help:    "Time until Redis had answered an operation, or failed to; the wait for a connection is part of it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .3, 1, 5},
		}, []string{"operation"}),
		errors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_redis_operation_errors_total",
			Help: "Operations that Redis did not answer as it should, by cause: queue, timeout, connection, answer, replicas or cancelled.",
		}, []string{"operation", "cause"}),
	}
}

func (m *metrics) observe(operation string, took time.Duration, cause string) {
	if m == nil {
		return
	}
	m.durations.WithLabelValues(operation).Observe(took.Seconds())
	if cause != "" {
		m.errors.WithLabelValues(operation, cause).Inc()
	}
}
