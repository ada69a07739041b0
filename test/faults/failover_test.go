//go:build faults

package faults

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func failoverFaults() []fault {
	const (
		plainly = "503 within 1 s, recovery without help, no charge doubled; what the replica lacked is lost in sessions and feed together, and the feed's consumers get 409"
		copied  = "the same, and no acknowledged settlement is lost"
	)
	return []fault{
		{"P1 P5 P6 P12", "failover by Sentinel, kill -9 of the master", copied, failovers(watchedBySentinels)},
		{"P1 P5 P6 P12", "failover of a Redis Cluster, kill -9 of a master", copied, failovers(redisCluster)},
		{"P1 P5 P6 P12", "failover by Sentinel, `--settlement-replicas 0`", plainly, failovers(watchedBySentinels, waitForNone...)},
		{"P1 P5 P6 P12", "failover of a Redis Cluster, `--settlement-replicas 0`", plainly, failovers(redisCluster, waitForNone...)},
		{"P5", "a Redis Cluster without replicas", "charges are served, settlements get 503 and are applied; with `--settlement-replicas 0` they are answered", tryNoReplicas},
		{"P5", "a settlement is reported again while the replica is frozen", "503 until the replica has it", tryFrozenReplica},
		{"P1 P4 P12", "a slot of a Redis Cluster moved back and forth under load", "no session is lost or doubled, each end is delivered once and is in the feed once", tryMovingSlots},
	}
}

// waitForNone is not the default with Sentinels or a Redis Cluster.
var waitForNone = []string{"--settlement-replicas", "0"}

// failovers kills a master during charges, in a Redis of its own each time. Every other time its replica was cut off just
// before, so that there is something to lose.
func failovers(start func(*testing.T) pairs, flags ...string) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		rounds := 2 * max(1, *intensity/2) // each takes about ten seconds
		var total failedOver
		for n := range rounds {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				f := newFailover(t, start(t), 1, flags)
				f.run(n%2 == 1)
				total.add(f.failedOver)
			})
		}
		return rounds, total.String()
	}
}

// failover is callers of several merchants who charge and settle, and repeat what got no answer.
type failover struct {
	*deployment
	failedOver

	pairs   pairs
	hooks   *receiver
	sellers []seller
	safe    bool // settlements wait for a replica
	asks    caller

	mu      sync.Mutex
	orders  []*failoverOrder
	answers atomic.Int64
	retries atomic.Int64
}

// seller is a merchant with a key, and who follows its feed.
type seller struct {
	merchant *v1alpha1.Merchant
	tag, key string
	consumer *consumer
}

// failoverOrder is one Idempotency-Key, with the sessions that were acknowledged to its callers.
type failoverOrder struct {
	name    string
	key     string
	cents   int
	ids     []string // acknowledged; more than one only if the first was lost
	settled string   // the session whose settlement was acknowledged
}

const failoverSellers, failoverCallers = 4, 6

func newFailover(t *testing.T, p pairs, dispatchers int, flags []string, change ...func(*v1alpha1.Merchant)) *failover {
	t.Helper()
	s := deployOn(t, p.url, 2, dispatchers, flags...)
	f := &failover{deployment: s, pairs: p, hooks: newReceiver(t), safe: !slices.Equal(flags, waitForNone), asks: newCaller()}
	for n := range failoverSellers {
		name := fmt.Sprint("seller-", n)
		merchant := s.Merchant(name, append(slices.Clone(change), func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: f.hooks.URL + "/hooks"} })...)
		key := s.apiKey("till-"+fmt.Sprint(n), name, mayDoAll)
		f.sellers = append(f.sellers, seller{merchant, space(merchant), key, newConsumer(s, merchant, key)})
	}
	return f
}

// startCallers has callers charge and settle until stop, which waits for them.
func (f *failover) startCallers(rail string) (stop func()) {
	done := make(chan struct{})
	var calling sync.WaitGroup
	for n := range failoverCallers {
		calling.Go(func() { f.shop(done, n, rail) })
	}
	return sync.OnceFunc(func() {
		close(done)
		calling.Wait()
	})
}

// startConsumers has all feeds followed until stop, which waits for that.
func (f *failover) startConsumers() (stop func()) {
	var stops []func()
	for _, own := range f.sellers {
		stops = append(stops, own.consumer.follow())
	}
	return sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
	})
}

// run kills the master of the first seller.
func (f *failover) run(cutOff bool) {
	f.t.Helper()
	rail := f.railToken()
	f.settlesEverywhere(rail)
	before := gauges(f.t, f.replicas[0].ops)
	stopProbing := probe(f.t, f.replicas[0].process, f.replicas[1].process, f.dispatchers[0])
	defer stopProbing()
	stop := f.startCallers(rail)
	defer stop()
	unfollow := f.startConsumers()
	defer unfollow()
	f.served(200)
	pair := f.pairs.pairWith(f.t, f.sellers[0].tag)
	master, replica := f.pairs.roles(f.t, pair)
	if cutOff {
		replica.Pause()
		f.must(master.keeper.ClientKillByFilter(f.t.Context(), "TYPE", "replica").Err())
		f.unheard()
		master.Kill()
		replica.Resume()
	} else {
		master.Kill()
	}
	killed := time.Now()
	retried := f.retries.Load()
	eventuallySees(f.t, "callers notice", func() (string, bool) {
		more := f.retries.Load() - retried
		if more > 10 {
			return "", true
		}
		seen, _ := f.pairs.view(f.t, pair, []member{replica})
		return fmt.Sprintf("%d more calls got 503; %s", more, seen), false
	})
	for n, own := range f.sellers {
		f.answered(http.StatusCreated, f.replicas[n%2].public, http.MethodPost, sessions, own.key, `{"amountCents":100}`)
	}
	f.away = time.Since(killed)
	f.pairs.rejoin(f.t, pair, master, replica)
	f.served(200)
	stop()
	unfollow()
	stopProbing()
	f.audit(cutOff)
	checkFlat(f.t, f.replicas[0].ops, before, gauges(f.t, f.replicas[0].ops))
}

// unheard waits until callers and a consumer know what the replica will never receive; settlements that wait for the replica get 503.
func (f *failover) unheard() {
	f.t.Helper()
	own := f.sellers[0]
	id := f.answered(http.StatusCreated, f.replicas[0].public, http.MethodPost, sessions, own.key, `{"amountCents":100}`).Text("sessionId")
	f.answered(http.StatusOK, f.replicas[0].public, http.MethodPost, sessions+"/"+id+"/cancel", own.key, "")
	eventually(f.t, "the consumer has read what will be lost", func() bool { return own.consumer.hasRead(id) })
	if !f.safe {
		f.served(100)
		return
	}
	before := f.retries.Load()
	eventually(f.t, "settlements are refused", func() bool { return f.retries.Load() >= before+2*failoverCallers })
}

// served waits until so many more calls were answered.
func (f *failover) served(more int64) {
	f.t.Helper()
	target := f.answers.Load() + more
	eventually(f.t, "callers are served", func() bool { return f.answers.Load() >= target })
}

// shop makes one order after the other.
func (f *failover) shop(done chan struct{}, caller int, rail string) {
	c := newCaller()
	for n := 0; ; n++ {
		o := &failoverOrder{name: fmt.Sprintf("order-%d-%d", caller, n), key: f.sellers[(caller+n)%len(f.sellers)].key, cents: 1250}
		f.mu.Lock()
		f.orders = append(f.orders, o)
		f.mu.Unlock()
		for charged := true; charged; {
			id, ok := f.charge(done, c, o, caller)
			if !ok {
				return
			}
			// Each charge is made twice, as careful clients do.
			if again, ok := f.charge(done, c, o, caller+1); !ok || again != id {
				if !ok {
					return
				}
				continue // the first is lost
			}
			charged = f.settle(done, c, o, id, caller, rail)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// charge repeats a charge until it is answered. Not ok: the callers are to stop.
func (f *failover) charge(done <-chan struct{}, c caller, o *failoverOrder, n int) (id string, ok bool) {
	got, ok := f.insist(done, func(try int) (fixture.Answer, error) {
		return c.call(f.replicas[(n+try)%2].public, http.MethodPost, sessions, o.key, fmt.Sprintf(`{"amountCents":%d,"orderRef":%q}`, o.cents, o.name),
			"Idempotency-Key", o.name)
	})
	if !ok {
		return "", false
	}
	if got.Status != http.StatusCreated {
		f.t.Errorf("a charge got %d %v", got.Status, got.Body)
		return "", false
	}
	id = got.Text("sessionId")
	if !slices.Contains(o.ids, id) {
		o.ids = append(o.ids, id)
	}
	return id, true
}

// settle reports a payment until it is answered, and reports whether its session is gone, so that it is to be charged again.
func (f *failover) settle(done <-chan struct{}, c caller, o *failoverOrder, id string, n int, rail string) (again bool) {
	got, ok := f.insist(done, func(try int) (fixture.Answer, error) {
		return c.call(f.replicas[(n+try)%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
			fmt.Sprintf(`{"paymentRef":%q,"outcome":"COMPLETED","amountCents":%d}`, o.name, o.cents))
	})
	applied, _ := got.Body["applied"].(bool)
	switch {
	case !ok:
	case got.Status == http.StatusNotFound:
		return true
	case got.Status == http.StatusOK && applied:
		o.settled = id
	default:
		f.t.Errorf("a settlement got %d %v", got.Status, got.Body)
	}
	return false
}

// insist repeats a call until it is answered with anything but 503. Not ok: the callers are to stop.
func (f *failover) insist(done <-chan struct{}, call func(try int) (fixture.Answer, error)) (got fixture.Answer, ok bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for try := 0; ; try++ {
		got, err := call(try)
		f.mu.Lock()
		f.slowest = max(f.slowest, got.Took)
		f.mu.Unlock()
		switch {
		case err != nil:
			f.t.Errorf("not answered: %v", err)
			return fixture.Answer{}, false
		case !unavailable(got):
			f.answers.Add(1)
			return got, true
		case got.Header.Get("Retry-After") == "":
			f.t.Error("a 503 does not say when to try again")
		}
		f.retries.Add(1)
		select {
		case <-done:
			return fixture.Answer{}, false
		case <-tick.C:
		}
	}
}

// tryNoReplicas settles where no replica will ever acknowledge it.
func tryNoReplicas(t *testing.T) (int, string) {
	t.Helper()
	servers := storetest.StartCluster(t)
	url := "redis+cluster://" + servers[0].Addr()
	s := deployOn(t, url, 1, 0)
	s.Merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	id := s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, `{"amountCents":1250}`).Text("sessionId")
	report := func(r *replica) (fixture.Answer, error) {
		return newCaller().call(r.internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
			`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1250}`)
	}
	rounds := 2 * *intensity
	for n := range rounds {
		eventuallySees(t, "the report is refused for want of a replica", func() (string, bool) {
			got, err := report(s.replicas[0]) // at first the rail may have no right yet
			return fmt.Sprint(got.Status, got.Body, err), unavailable(got) && got.Header.Get("Retry-After") != ""
		})
		if got := s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodGet, sessions+"/"+id, key, "").Text("status"); got != "COMPLETED" {
			t.Errorf("after report %d the session is %s, want COMPLETED", n+1, got)
		}
	}
	logs := shared.logs.String()
	for _, server := range servers {
		if !slices.ContainsFunc(strings.Split(logs, "\n"), func(line string) bool {
			return strings.Contains(line, "too few replicas: settlements get 503") && strings.Contains(line, server.Addr())
		}) {
			t.Errorf("no log names %s, which has no replica:\n%s", server.Addr(), logs)
		}
	}
	s.flags = waitForNone
	s.addReplica(1)
	got, err := report(s.replicas[1])
	s.must(err)
	if got.Status != http.StatusOK || got.Body["applied"] != true {
		t.Errorf("with %s the report got %d %v, want what the first one would have got", strings.Join(waitForNone, " "), got.Status, got.Body)
	}
	return rounds, fmt.Sprintf("%d reports got 503 and changed nothing more; the log names the %d servers; then answered", rounds, len(servers))
}

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
	from := f.pairs.pairWith(t, tag)
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
	if f.conflicts > 0 {
		t.Errorf("consumers got 409 %d times, and Redis has lost nothing", f.conflicts)
	}
	if f.lostCharges+f.lostSettlements > 0 {
		t.Errorf("%d of %d charges and %d of %d settlements are lost", f.lostCharges, f.charges, f.lostSettlements, f.settlements)
	}
	return moves, fmt.Sprintf("%d keys moved in %d moves; %d charges, %d settlements, none lost; %d events, each delivered and in the feed, none doubled; %d calls got 503",
		keys, moves, f.charges, f.settlements, f.eachReportedOnce(masters), f.retried)
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

// failedOver is what came of failovers.
type failedOver struct {
	charges, settlements         int // acknowledged
	lostCharges, lostSettlements int
	lostPlainly                  int // of both, with a replica that followed
	retried                      int // calls that got 503
	inFeeds, conflicts           int // events in feeds, and answers 409 to their consumers
	slowest, away                time.Duration
}

func (f *failedOver) add(other failedOver) {
	f.charges += other.charges
	f.settlements += other.settlements
	f.lostCharges += other.lostCharges
	f.lostSettlements += other.lostSettlements
	f.lostPlainly += other.lostPlainly
	f.retried += other.retried
	f.inFeeds += other.inFeeds
	f.conflicts += other.conflicts
	f.slowest, f.away = max(f.slowest, other.slowest), max(f.away, other.away)
}

// String is for the table.
func (f *failedOver) String() string {
	return fmt.Sprintf("%d of %d acknowledged charges lost and %d of %d settlements, %d of these with a replica that had followed; none doubled; "+
		"%d events in the feeds as in the sessions, %d times a consumer got 409 for lost ones; "+
		"%d calls got 503, the slowest answer took %d ms; served again after %.1f s",
		f.lostCharges, f.charges, f.lostSettlements, f.settlements, f.lostPlainly, f.inFeeds, f.conflicts, f.retried, f.slowest.Milliseconds(), f.away.Seconds())
}

// audit asks for every session that was acknowledged, and counts those that are lost. With settlements that wait for the
// replica none of these may be.
func (f *failover) audit(cutOff bool) {
	f.t.Helper()
	f.retried = int(f.retries.Load())
	for _, o := range f.orders {
		var alive []string
		for _, id := range o.ids {
			got := f.answered(0, f.replicas[0].public, http.MethodGet, sessions+"/"+id, o.key, "")
			switch got.Status {
			case http.StatusOK:
				alive = append(alive, id)
			case http.StatusNotFound:
				f.lostCharges++
			default:
				f.t.Fatalf("a session got %d %v", got.Status, got.Body)
			}
			if id == o.settled {
				f.settlements++
				if got.Text("status") != "COMPLETED" {
					f.lostSettlements++
				}
			}
		}
		f.charges += len(o.ids)
		if len(alive) > 1 {
			f.t.Errorf("%s is charged more than once: %s", o.name, strings.Join(alive, ", "))
		}
	}
	if !cutOff {
		f.lostPlainly = f.lostCharges + f.lostSettlements
	}
	if f.slowest > bound {
		f.t.Errorf("the slowest answer took %s, want at most %s", f.slowest, bound)
	}
	if f.safe && f.lostSettlements > 0 {
		f.t.Errorf("%d of %d acknowledged settlements are lost", f.lostSettlements, f.settlements)
	}
	f.auditFeeds()
	if cutOff && f.sellers[0].consumer.conflicts == 0 {
		f.t.Error("no 409 for a consumer that has read what is lost")
	}
	f.t.Logf("replica cut off: %v; %s", cutOff, f.failedOver.String())
	f.webhooksArrive()
}

// auditFeeds compares each feed, and what its consumer has seen, with the sessions.
func (f *failover) auditFeeds() {
	f.t.Helper()
	var masters []*goredis.Client
	for pair := range f.pairs.shards {
		master, _ := f.pairs.roles(f.t, pair)
		masters = append(masters, master.keeper)
	}
	for _, own := range f.sellers {
		f.inFeeds += own.consumer.audit(f.hashes(own.tag+"session:", masters...))
		f.conflicts += own.consumer.conflicts
	}
}

// answered calls again while it gets 503, for Redis may change its master at any time, and then wants the status; 0: any.
func (f *failover) answered(status int, base, method, path, bearer, body string) (got fixture.Answer) {
	f.t.Helper()
	eventuallySees(f.t, method+" "+path+" is answered", func() (string, bool) {
		var err error
		got, err = f.asks.call(base, method, path, bearer, body)
		return fmt.Sprintf("%d %v, %v", got.Status, got.Body, err), err == nil && !unavailable(got)
	})
	if status != 0 && got.Status != status {
		f.t.Fatalf("%s %s: %d %v; want %d", method, path, got.Status, got.Body, status)
	}
	return got
}

// webhooksArrive waits for the webhook of a new charge: the dispatcher works again as well.
func (f *failover) webhooksArrive() {
	f.t.Helper()
	own := f.sellers[0]
	id := f.answered(http.StatusCreated, f.replicas[0].public, http.MethodPost, sessions, own.key, `{"amountCents":100}`).Text("sessionId")
	f.answered(http.StatusOK, f.replicas[0].public, http.MethodPost, sessions+"/"+id+"/cancel", own.key, "")
	eventually(f.t, "the webhook of a new charge arrives", func() bool { return f.hooks.received(id) })
}
