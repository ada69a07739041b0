package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ByServer groups buckets by the Redis server that has them. While that is not known, each bucket of a Redis Cluster is a group of its own.
func (c *Client) ByServer(ctx context.Context, buckets []session.Bucket) [][]session.Bucket {
	if !c.Clustered() {
		return [][]session.Bucket{buckets}
	}
	var groups [][]session.Bucket
	places := map[string]int{} // in groups, by server, or by bucket
	for _, bucket := range buckets {
		space := string(BucketKeyspace(bucket))
		server := cmp.Or(c.Server(ctx, space), space)
		place, known := places[server]
		if !known {
			place = len(groups)
			places[server] = place
			groups = append(groups, nil)
		}
		groups[place] = append(groups[place], bucket)
	}
	return groups
}

// ForEach calls do with each bucket: one after the other with those of one server, in their order, at the same time with those of several. Once a server
// serves nobody its other buckets are left out: so what is for a server that is there never waits for one that is gone. It returns all errors.
func (c *Client) ForEach(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error {
	groups := c.ByServer(ctx, buckets)
	errs := make([][]error, len(groups))
	var running sync.WaitGroup
	for i, group := range groups {
		running.Go(func() {
			for _, bucket := range group {
				err := do(ctx, bucket)
				if err != nil {
					errs[i] = append(errs[i], err)
				}
				if ServesNobody(err) || ctx.Err() != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(slices.Concat(errs...)...)
}
