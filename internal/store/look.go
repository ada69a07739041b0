package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

var lookScript = newScript("look", "look")

// Outlook is what there is to do in a bucket.
type Outlook struct {
	Bucket session.Bucket
	// Events are due, to be leased; Sessions have passed their expiry and are still pending.
	Events, Sessions bool
	// Troubled: there are endpoints for TroubledEndpoints.
	Troubled bool
	// Overdue tells for how long the first of what is due has waited.
	Overdue Overdue
}

// Overdue is for how long what has waited longest in a bucket is due; zero: nothing is.
type Overdue struct {
	// Event waits for an attempt to deliver it, or for the end of a crashed dispatcher's lease.
	Event time.Duration
	// Session has passed its expiry and is still pending.
	Session time.Duration
}

// Look tells of all buckets what there is to do, in one trip: those who do it need not ask each bucket in vain. It changes
// nothing. Of a Redis Cluster it takes a trip to each server, and what those tell that answered is returned beside the error of the
// others. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) Look(ctx context.Context) ([]Outlook, error) {
	buckets := everyBucket()
	if cluster, ok := s.link.Client.(*redis.ClusterClient); ok {
		return s.lookAround(ctx, cluster, buckets)
	}
	return s.lookAt(ctx, buckets...)
}

// lookAt looks at buckets whose keys may be in one script.
func (s *Store) lookAt(ctx context.Context, buckets ...session.Bucket) ([]Outlook, error) {
	answer, err := s.run(ctx, lookScript, lookKeys(buckets...))
	if err != nil {
		return nil, fmt.Errorf("look for work: %w", err)
	}
	return outlooksOf(answer, buckets...)
}

func lookKeys(buckets ...session.Bucket) []string {
	keys := make([]string, 0, 3*len(buckets))
	for _, bucket := range buckets {
		space := keyspaceOf(bucket)
		keys = append(keys, space.due(), space.expiry(), space.troubled())
	}
	return keys
}

// lookAround looks at each bucket on its own, for they are in slots of their own, and sends together what goes to one server. A
// server that does not know the script yet is asked again.
func (s *Store) lookAround(ctx context.Context, cluster *redis.ClusterClient, buckets []session.Bucket) ([]Outlook, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	together := cluster.Pipeline()
	asked := make([]*redis.Cmd, len(buckets))
	for i, bucket := range buckets {
		asked[i] = together.EvalSha(bounded, lookScript.sha, lookKeys(bucket))
	}
	start := time.Now()
	_, err := together.Exec(bounded) // the first; each has its own
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = nil
	}
	s.metrics.observe(lookScript.operation, time.Since(start), causeOf(err))
	var all []Outlook
	var errs []error
	for i, bucket := range buckets {
		found, err := s.outlookOf(ctx, asked[i], bucket)
		all = append(all, found...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (s *Store) outlookOf(ctx context.Context, asked *redis.Cmd, bucket session.Bucket) ([]Outlook, error) {
	values, err := asked.Slice()
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		return s.lookAt(ctx, bucket)
	case err != nil:
		return nil, fmt.Errorf("look for work: %w", failure(err))
	}
	return outlooksOf(&reply{rest: values}, bucket)
}

func outlooksOf(answer *reply, buckets ...session.Bucket) ([]Outlook, error) {
	ok := answer.text() == wordOK
	all := make([]Outlook, len(buckets))
	for i, bucket := range buckets {
		event, expired := answer.integer(), answer.integer()
		all[i] = Outlook{
			Bucket: bucket, Events: event >= 0, Sessions: expired >= 0, Troubled: answer.integer() > 0,
			Overdue: Overdue{Event: overdueOf(event), Session: overdueOf(expired)},
		}
	}
	if !ok || answer.broken {
		return nil, fmt.Errorf("look for work: %w", ErrCorrupt)
	}
	return all, nil
}

func overdueOf(ms int64) time.Duration { return time.Duration(max(0, ms)) * time.Millisecond }
