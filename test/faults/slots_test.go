//go:build faults

package faults

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// tryMovingSlots moves the slot of a merchant's bucket between two masters of a Redis Cluster and back, key by key as
// redis-cli does it, while callers charge and settle and a dispatcher delivers.
func tryMovingSlots(t *testing.T) (int, string) {
	t.Helper()
	f := newFailover(t, redisCluster(t), 1, nil)
	rail := f.railToken()
	f.settlesEverywhere(rail)
	stop := f.startCallers(rail)
	defer stop()
	unfollow := f.startConsumers()
	defer unfollow()
	var masters []member
	for pair := range f.pairs.shards {
		master, _ := f.pairs.roles(t, pair)
		masters = append(masters, master)
	}
	tag := f.sellers[0].tag
	slot := int(masters[0].keeper.ClusterKeySlot(t.Context(), tag).Val())
	from := f.pairs.of(t, tag)
	moves, keys := 4**intensity, 0
	for range moves {
		f.served(100)
		to := (from + 1) % len(masters)
		keys += f.moveSlot(masters, slot, from, to)
		from = to
	}
	f.served(200)
	stop()
	unfollow()
	f.audit(false)
	if f.told > 0 {
		t.Errorf("%d times a consumer was told that events are lost", f.told)
	}
	if f.lostCharges+f.lostSettlements > 0 {
		t.Errorf("%d of %d charges and %d of %d settlements are lost", f.lostCharges, f.charges, f.lostSettlements, f.settlements)
	}
	return moves, fmt.Sprintf("%d keys moved in %d moves; %d charges, %d settlements, none lost; %d events, each delivered and in the feed, none doubled; %d calls got 503",
		keys, moves, f.charges, f.settlements, f.eachReportedOnce(masters), f.refused)
}

// moveSlot moves one slot with all that is in it, and returns how many keys that were.
func (f *failover) moveSlot(masters []member, slot, from, to int) (moved int) {
	f.t.Helper()
	ctx := f.t.Context()
	source, target := masters[from], masters[to]
	sourceID, targetID := source.keeper.Do(ctx, "CLUSTER", "MYID").Val(), target.keeper.Do(ctx, "CLUSTER", "MYID").Val()
	f.must(target.keeper.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID).Err())
	f.must(source.keeper.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID).Err())
	host, port, _ := net.SplitHostPort(target.Addr())
	for {
		keys, err := source.keeper.ClusterGetKeysInSlot(ctx, slot, 10).Result()
		f.must(err)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			// Without REPLACE: two keys of one name are what must not be, and one of them would be lost.
			said, err := source.keeper.Migrate(ctx, host, port, key, 0, fixture.Patience).Result()
			if err != nil {
				f.t.Fatalf("%s cannot be moved: %v", key, err)
			}
			if said == "OK" { // and not NOKEY, for it was delivered or expired meanwhile
				moved++
			}
		}
	}
	for _, m := range append([]member{target, source}, masters...) {
		f.must(m.keeper.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", targetID).Err())
	}
	return moved
}

// eachReportedOnce waits until the end of every settled session was delivered and none is left to be delivered, and returns how many those are.
func (f *failover) eachReportedOnce(masters []member) (settled int) {
	f.t.Helper()
	eventuallySees(f.t, "no event is left", func() (string, bool) {
		var left []string
		for _, m := range masters {
			keys, err := m.keeper.Keys(f.t.Context(), "{b*}:event:*"+ended).Result()
			f.must(err)
			left = append(left, keys...)
		}
		return fmt.Sprintf("left: %s", strings.Join(left, ", ")), len(left) == 0
	})
	delivered := f.hooks.bySession()
	for _, o := range f.orders {
		if o.settled == "" {
			continue
		}
		settled++
		if events := delivered[o.settled]; len(events) != 1 {
			f.t.Errorf("%s of %s was settled, and these events arrived: %v", o.settled, o.name, events)
		}
	}
	return settled
}

// bySession are the ids of the events that arrived, by their session.
func (r *receiver) bySession() map[string][]string {
	found := map[string][]string{}
	for _, attempt := range r.Attempts() {
		if session := attempt.SessionID(); !slices.Contains(found[session], attempt.ID) {
			found[session] = append(found[session], attempt.ID)
		}
	}
	return found
}
