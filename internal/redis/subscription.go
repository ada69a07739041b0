package redis

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Subscriber is called with what happens to a Subscription, from several goroutines. It must not block.
type Subscriber interface {
	// Subscribed says that messages of the bucket's channel arrive from now on. Those before may be lost, also when the bucket had been
	// subscribed to earlier.
	Subscribed(bucket session.Bucket)
	// Received gives a message.
	Received(bucket session.Bucket, message string)
	// Lost says that messages of the bucket may be lost until it is Subscribed again, which the Subscription keeps trying.
	Lost(bucket session.Bucket, err error)
}

// Subscription receives the messages of one channel in each of the buckets that were added. It has one connection, and in a Redis Cluster
// one for each bucket: slots move one by one.
type Subscription struct {
	client     *Client
	channel    string
	subscriber Subscriber
	// unsharded: the servers of this Redis Cluster are older than Redis 7 and know no SSUBSCRIBE.
	unsharded atomic.Bool

	mu          sync.Mutex
	closed      bool
	connections map[session.Bucket]*subscribed // by their first bucket, or all by 0
	running     sync.WaitGroup
}

// subscribed is the buckets of one connection.
type subscribed struct {
	*Subscription

	stop    context.CancelFunc
	changed chan struct{} // has room for one

	// Guarded by the mutex of the Subscription.
	byChannel map[string]session.Bucket // by the name of the channel
	changes   []change                  // that the server has not been asked for, in order
}

// change adds a channel to a connection, or removes one.
type change struct {
	channel string
	added   bool
}

const (
	// quietTime is how long nothing may come before the server is asked whether it is there, and then until it answers.
	quietTime = 5 * time.Second
	// resubscribeTime is the most to wait before the next attempt to subscribe. It is halved for each attempt before the fourth.
	resubscribeTime = 2 * time.Second
)

// Subscribe returns a Subscription to no bucket. Close ends it.
func (c *Client) Subscribe(channel string, subscriber Subscriber) *Subscription {
	return &Subscription{client: c, channel: channel, subscriber: subscriber, connections: map[session.Bucket]*subscribed{}}
}

// Add subscribes to a bucket, and returns before that is done.
func (s *Subscription) Add(bucket session.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	connection := s.connections[s.connectionKey(bucket)]
	if connection == nil {
		ctx, stop := context.WithCancel(context.Background())
		connection = &subscribed{Subscription: s, stop: stop, changed: make(chan struct{}, 1), byChannel: map[string]session.Bucket{}}
		s.connections[s.connectionKey(bucket)] = connection
		s.running.Go(func() { connection.run(ctx) })
	}
	channel := BucketKeyspace(bucket).Key(s.channel)
	connection.byChannel[channel] = bucket
	connection.change(channel, true)
}

// Remove unsubscribes from a bucket.
func (s *Subscription) Remove(bucket session.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.connectionKey(bucket)
	connection := s.connections[at]
	if connection == nil {
		return
	}
	channel := BucketKeyspace(bucket).Key(s.channel)
	delete(connection.byChannel, channel)
	connection.change(channel, false)
	if len(connection.byChannel) == 0 {
		connection.stop()
		delete(s.connections, at)
	}
}

// Close ends the subscription and waits for its goroutines.
func (s *Subscription) Close() {
	s.mu.Lock()
	s.closed = true
	for _, connection := range s.connections {
		connection.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// connectionKey is the bucket by which its connection is kept.
func (s *Subscription) connectionKey(bucket session.Bucket) session.Bucket {
	if s.client.Clustered() {
		return bucket
	}
	return 0
}

func (c *subscribed) change(channel string, added bool) {
	c.changes = append(c.changes, change{channel, added})
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run subscribes, again after each failure, until the connection is stopped.
func (c *subscribed) run(ctx context.Context) {
	for failed := 0; ; {
		confirmed, err := c.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, bucket := range c.buckets() {
			c.subscriber.Lost(bucket, failure(err))
		}
		if confirmed {
			failed = 0
		}
		if c.recover(ctx, err) {
			continue
		}
		failed++
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter.UpTo(resubscribeTime >> max(0, 4-failed))):
		}
	}
}

// recover finds out what an answer of a Redis Cluster asks for, and reports whether to subscribe again at once.
func (c *subscribed) recover(ctx context.Context, err error) bool {
	cluster, ok := c.client.client.(*redis.ClusterClient)
	if !ok {
		return false
	}
	cluster.ReloadState(ctx) // the bucket may be at another server by now
	return redis.HasErrorPrefix(err, "unknown command") && c.unsharded.CompareAndSwap(false, true)
}

var errSlotMoved = errors.New("the slot has moved to another server")

// listen subscribes on a new connection and passes on what it receives, until the connection fails or ctx ends. It reports whether the
// server had confirmed any subscription.
func (c *subscribed) listen(ctx context.Context) (confirmed bool, err error) {
	subscribe, unsubscribe := (*redis.PubSub).Subscribe, (*redis.PubSub).Unsubscribe
	open := c.client.client.Subscribe
	if c.client.Clustered() && !c.unsharded.Load() {
		subscribe, unsubscribe, open = (*redis.PubSub).SSubscribe, (*redis.PubSub).SUnsubscribe, c.client.client.SSubscribe
	}
	pubsub := open(ctx, c.channels()...) // an error ends the receiver
	receiver := make(chan error, 1)
	go func() { receiver <- c.receive(ctx, pubsub, &confirmed) }()
	for {
		select {
		case err = <-receiver:
			_ = pubsub.Close()
			return confirmed, err
		case <-ctx.Done():
			_ = pubsub.Close() // and with it the receiver
			return confirmed, cmp.Or(ctx.Err(), <-receiver)
		case <-c.changed:
			for _, change := range c.takeChanges() {
				if change.added {
					_ = subscribe(pubsub, ctx, change.channel) // an error ends the receiver
				} else {
					_ = unsubscribe(pubsub, ctx, change.channel)
				}
			}
		}
	}
}

// channels returns all that are subscribed to now; changes before are among them.
func (c *subscribed) channels() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = nil
	return slices.Collect(maps.Keys(c.byChannel))
}

func (c *subscribed) buckets() []session.Bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.byChannel))
}

func (c *subscribed) takeChanges() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes := c.changes
	c.changes = nil
	return changes
}

// receive passes on what comes, until the connection fails.
func (c *subscribed) receive(ctx context.Context, pubsub *redis.PubSub, confirmed *bool) error {
	for asked := false; ; {
		received, err := pubsub.ReceiveTimeout(ctx, quietTime)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !asked {
			asked = true
			err = pubsub.Ping(ctx)
		}
		if err != nil {
			return err
		}
		switch received := received.(type) {
		case *redis.Message:
			if bucket, ok := c.find(received.Channel); ok {
				c.subscriber.Received(bucket, received.Payload)
			}
		case *redis.Subscription:
			switch bucket, ok := c.find(received.Channel); {
			case received.Kind == "sunsubscribe" && ok:
				return errSlotMoved
			case ok && (received.Kind == "subscribe" || received.Kind == "ssubscribe"):
				*confirmed = true
				c.subscriber.Subscribed(bucket)
			}
		case nil: // asked
			continue
		}
		asked = false
	}
}

func (c *subscribed) find(channel string) (session.Bucket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bucket, ok := c.byChannel[channel]
	return bucket, ok
}
