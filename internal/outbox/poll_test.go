package outbox_test

import (
	"errors"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// work is what there is to do and to report in a bucket.
type work struct{ Events, Sessions, Endpoints bool }

// pendingWork returns what there is to do, by bucket; the buckets with nothing to do are left out.
func (s fixture) pendingWork(t *testing.T) map[session.Bucket]work {
	t.Helper()
	all, err := s.PendingWork(t.Context())
	must(t, err)
	reports, err := s.PendingReports(t.Context())
	must(t, err)
	if len(all) != session.Buckets || len(reports) != session.Buckets {
		t.Errorf("work of %d buckets, reports of %d", len(all), len(reports))
	}
	busy := map[session.Bucket]work{}
	for i, one := range all {
		if found := (work{one.Events, one.Sessions, reports[i].Endpoints}); found != (work{}) {
			busy[one.Bucket] = found
		}
	}
	return busy
}

func (s fixture) wantWork(t *testing.T, when string, want work) {
	t.Helper()
	all := map[session.Bucket]work{}
	if want != (work{}) {
		all[s.bucket()] = want
	}
	if diff := cmp.Diff(all, s.pendingWork(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// score sets the time of an entry.
func (s fixture) score(t *testing.T, key, member string, at time.Time) {
	t.Helper()
	must(t, s.redis.ZAdd(t.Context(), s.tag+key, goredis.Z{Score: float64(at.UnixMilli()), Member: member}).Err())
}

func TestPendingWork(t *testing.T) {
	s := newFixture(t)
	s.wantWork(t, "with nothing to do", work{})

	pending := storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession()).Session.ID
	s.wantWork(t, "with a session that is pending", work{})
	s.score(t, "expiry", pending.String(), time.Now().Add(-time.Second))
	s.wantWork(t, "with a session past its expiry", work{Sessions: true})
	s.score(t, "expiry", pending.String(), time.Now().Add(time.Hour))

	s.event(t)
	s.wantWork(t, "with an event", work{Events: true})
	lease := s.one(t)
	s.wantWork(t, "with a leased event", work{})

	_, err := s.RecordFailure(t.Context(), lease, outbox.Failure{Details: outbox.Details{Reason: "gone"}, Gone: true, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour})
	must(t, err)
	s.wantWork(t, "with an endpoint that is disabled", work{Endpoints: true})
}

// A dispatcher at rest asks all day: where no bucket has events, that is one command for all of them.
func TestPending_CommandsAtRest(t *testing.T) {
	s := newFixture(t)
	storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession())
	_, err := s.PendingWork(t.Context()) // loads the scripts
	must(t, err)
	_, err = s.PendingReports(t.Context())
	must(t, err)

	must(t, s.redis.ConfigResetStat(t.Context()).Err())
	s.wantWork(t, "with a session that is pending", work{})
	statistics, err := s.redis.Info(t.Context(), "commandstats").Result()
	must(t, err)
	commands := map[string]string{}
	for _, match := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(statistics, -1) {
		commands[match[1]] = match[2]
	}
	want := map[string]string{"evalsha": "2", "time": "2", "exists": "2", "zrange": strconv.Itoa(session.Buckets)}
	for command, calls := range want {
		if commands[command] != calls {
			t.Errorf("%s calls of %s, want %s", commands[command], command, calls)
		}
	}
}

func TestPendingWork_Overdue(t *testing.T) {
	s := newFixture(t)
	s.score(t, "expiry", storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession()).Session.ID.String(), time.Now().Add(-2*time.Hour))
	all, err := s.PendingWork(t.Context())
	must(t, err)
	if overdue := all[s.bucket()].Overdue; overdue < 2*time.Hour || overdue > 2*time.Hour+storetest.Timeout {
		t.Errorf("a session is overdue by %s, want two hours", overdue)
	}
}

func TestPendingWork_Next(t *testing.T) {
	s := newFixture(t)
	next := func() time.Duration {
		all, err := s.PendingWork(t.Context())
		must(t, err)
		return all[s.bucket()].Next
	}
	if got := next(); got != outbox.NothingDue {
		t.Errorf("with nothing to do the next is due in %s, want %s", got, outbox.NothingDue)
	}
	pending := storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession()).Session.ID
	s.score(t, "expiry", pending.String(), time.Now().Add(10*time.Minute))
	if got := next(); got > 10*time.Minute || got < 10*time.Minute-storetest.Timeout {
		t.Errorf("a session expires in %s, want ten minutes", got)
	}
	dueAt(t, s.redis, s.tag, s.event(t), time.Now().Add(5*time.Minute))
	if got := next(); got > 5*time.Minute || got < 5*time.Minute-storetest.Timeout {
		t.Errorf("an event is due in %s, want five minutes", got)
	}
}

// Such a bucket counts as busy: its lease or its sweep then reports the error. The others are polled as usual.
func TestPendingWork_UnreadableKeys(t *testing.T) {
	s := newFixture(t)
	s.event(t)
	other := (s.bucket() + 1) % session.Buckets
	for _, key := range []string{"due", "expiry", "watched"} {
		must(t, s.redis.Set(t.Context(), storetest.BucketTag(other)+key, "no zset", 0).Err())
	}
	want := map[session.Bucket]work{
		s.bucket(): {Events: true},
		other:      {Events: true, Sessions: true, Endpoints: true},
	}
	if diff := cmp.Diff(want, s.pendingWork(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPendingWork_OneCommand(t *testing.T) {
	s := newFixture(t)
	s.pendingWork(t) // Redis gets to know the script
	commands := storetest.ClientCommands(t, s.server, func() { s.pendingWork(t) })
	if diff := cmp.Diff([]string{"evalsha", "evalsha"}, commands); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPendingWork_Cluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := fixture{Services: storetest.New(t, "redis+cluster://"+servers[0].Addr()), server: servers[0]}
	for i := range 8 {
		s.asks = storetest.MerchantIn(session.Bucket(8 * i))
		s.event(t)
	}
	for _, when := range []string{"when no server knows the script", "when they know it"} {
		busy := s.pendingWork(t)
		if len(busy) != 8 || !busy[8].Events {
			t.Errorf("%s: busy are %v", when, busy)
		}
	}
	servers[1].Stop()
	all, err := s.PendingWork(t.Context())
	if !errors.Is(err, redis.ErrUnavailable) || len(all) == 0 || len(all) == session.Buckets {
		t.Errorf("without one server: %d buckets, %v", len(all), err)
	}
}

func TestBacklog(t *testing.T) {
	s := newFixture(t)
	s.deadLetter(t, "dns")
	s.fail(t, "here", nil)
	s.fail(t, "here", gone)
	s.event(t)
	backlog, err := s.Backlog(t.Context(), s.bucket())
	backlog.Overdue = 0
	if want := (outbox.Backlog{Due: 2, Dead: 2}); err != nil || backlog != want {
		t.Errorf("%+v, %v; want %+v", backlog, err, want)
	}
}

// An event is late if it waits for a dispatcher, not if it waits for its endpoint.
func TestBacklog_Overdue(t *testing.T) {
	s := newFixture(t)
	down := storetest.MerchantIn(s.bucket())
	other := s
	other.asks = down
	dueAt(t, s.redis, s.tag, other.event(t), time.Now().Add(-2*time.Hour))
	dueAt(t, s.redis, s.tag, s.event(t), time.Now().Add(-time.Hour))
	for name, row := range map[string]struct {
		blocked []string
		want    time.Duration
	}{
		"none is blocked": {nil, 2 * time.Hour},
		"a stranger is":   {[]string{"unknown"}, 2 * time.Hour},
		"the longest is":  {[]string{down.MerchantID, "unknown"}, time.Hour},
		"all are":         {[]string{down.MerchantID, s.asks.MerchantID}, 0},
	} {
		backlog, err := s.Backlog(t.Context(), s.bucket(), row.blocked...)
		must(t, err)
		if backlog.Due != 2 || backlog.Overdue < row.want || backlog.Overdue > row.want+storetest.Timeout || row.want == 0 && backlog.Overdue != 0 {
			t.Errorf("%s: %+v, want 2 events, overdue by %s", name, backlog, row.want)
		}
	}
}
