package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Poll is PollBuckets of all buckets.
func Poll[T any](
	ctx context.Context, c *Client, script *Script, kinds []string, args func(*Call), parse func(*Reply, session.Bucket) T,
) ([]T, error) {
	return PollBuckets(ctx, c, session.AllBuckets(), script, kinds, args, parse)
}

// PollBuckets runs a script on the keys of these kinds of the buckets, and parses its reply for each bucket: in one round trip, or in a Redis Cluster
// in one to each server. args writes the arguments; nil: there are none. What those servers return that answered is returned beside the error of the
// others, which is ErrCorrupt or ErrUnavailable.
func PollBuckets[T any](
	ctx context.Context, c *Client, buckets []session.Bucket, script *Script, kinds []string, args func(*Call), parse func(*Reply, session.Bucket) T,
) ([]T, error) {
	each := session.Buckets
	if c.Clustered() { // they are in slots of their own
		each = 1
	}
	groups := slices.Collect(slices.Chunk(buckets, each))
	calls := make([]*Call, len(groups))
	for i, group := range groups {
		call := NewCall(script)
		for _, bucket := range group {
			for _, kind := range kinds {
				call.MoreKey(BucketKeyspace(bucket), kind)
			}
		}
		if args != nil {
			args(&call)
		}
		calls[i] = &call
	}
	replies, errs := c.runEach(ctx, calls)
	var all []T
	for i, group := range groups {
		if errs[i] != nil {
			continue
		}
		reply, found := &replies[i], make([]T, 0, len(group))
		reply.RequireOK()
		for _, bucket := range group {
			found = append(found, parse(reply, bucket))
		}
		if errs[i] = reply.Err(); errs[i] == nil {
			all = append(all, found...)
		}
	}
	return all, errors.Join(errs...)
}

// runEach runs calls of one script. Each is in a slot of its own, so they are sent together, one
// batch to each server of a Redis Cluster. Each has its own reply or error.
func (c *Client) runEach(ctx context.Context, calls []*Call) ([]Reply, []error) {
	if len(calls) == 1 {
		reply, err := c.Run(ctx, calls[0])
		return []Reply{reply}, []error{err}
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	batch := c.client.Pipeline()
	sent := make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		command := call.command()
		command[0], command[1] = "evalsha", &c.programFor(call.script).sha
		sent[i] = redis.NewCmd(bounded, command...)
		sent[i].SetFirstKeyPos(firstKeyPos)
		_ = batch.Process(bounded, sent[i]) // only takes it down
	}
	start := time.Now()
	err := exec(bounded, batch) // the first; each has its own
	if isNoScript(err) {
		err = nil
	}
	c.metrics.observe(calls[0].script.operation, time.Since(start), errorCause(err))
	replies, errs := make([]Reply, len(calls)), make([]error, len(calls))
	for i, command := range sent {
		answer, err := command.Result()
		switch {
		case isNoScript(err):
			replies[i], errs[i] = c.Run(ctx, calls[i])
		case err != nil:
			errs[i] = failure(err)
		default:
			replies[i] = newReply(answer)
		}
	}
	return replies, errs
}
