//go:build faults

package faults

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

const (
	soakTills  = 8
	soakPause  = 250 * time.Millisecond // of a till between two orders
	soakLooks  = 24
	publicPath = "/api/v1/public/sessions/"
	// soakLifetime is of a session, in seconds: what nobody pays expires during the soak.
	soakLifetime = 60
)

// soak is a busy day of a few shops: tills charge each order twice, then a rail is paid, or they cancel or leave it, payers poll or hold a
// stream, keys are rotated, receivers cut connections off, and the master of Redis is killed.
type soak struct {
	*failover

	keys    []atomic.Pointer[string] // of the sellers
	moved   *railJournal
	streams *http.Client
	payers  sync.WaitGroup
	shown   atomic.Int64 // ends that a payer has seen

	killed []time.Time
	sold   []*soakOrder
}

// soakOrder is an order with the end that its session must have.
type soakOrder struct {
	failoverOrder

	seller int
	told   time.Time // when the end was acknowledged, or the charge if it is left
	ends   session.Status
}

// TestSoak takes as long as -soak says, and shows what the roles take meanwhile. At the end they must not take more than when they
// had warmed up, and every charge is accounted for.
func TestSoak(t *testing.T) {
	p := watchedBySentinels(t)
	flags := []string{"--settlement-replicas", "1", "--max-streams-per-address", "10000"}
	f := newFailover(t, p, 2, flags, func(m *v1alpha1.Merchant) {
		m.Spec.Sessions = v1alpha1.SessionSettings{LifetimeSeconds: soakLifetime}
		if m.Name == "seller-1" {
			m.Spec.TimeZone = "Asia/Kolkata" // its days are others
		}
	})
	s := &soak{failover: f, keys: make([]atomic.Pointer[string], len(f.sellers)), moved: newRailJournal(t), streams: &http.Client{}}
	for n, own := range f.sellers {
		s.keys[n].Store(&own.key)
	}
	rail := &soakRail{soak: s, token: s.railToken(), owed: map[refusedPayment]int{}}
	s.settlesEverywhere(rail.token)
	s.hooks.die(func(n int) bool { return n%20 == 0 })

	began, done, tillsEnd, payersEnd := time.Now(), make(chan struct{}), make(chan struct{}), make(chan struct{})
	patient, leave := context.WithCancel(t.Context())
	defer leave()
	var tills sync.WaitGroup
	for n := range soakTills {
		tills.Go(func() { s.till(patient, done, n, rail) })
	}
	roles := []*process{s.replicas[0].process, s.replicas[1].process, s.dispatchers[0], s.dispatchers[1], shared.operator}
	warm := make([]map[string]float64, len(roles))
	tick := time.NewTicker(*soaking / soakLooks)
	defer tick.Stop()
	for n := range soakLooks {
		<-tick.C
		switch {
		case n%8 == 7 && n < soakLooks-1:
			s.failOver()
		case n%2 == 0:
			s.rotate(n / 2 % len(s.keys))
		}
		for i, role := range roles {
			now := gauges(t, role.ops)
			t.Logf("%6.0f s  %-12s %4.0f goroutines %6.1f MB %4.0f files", time.Since(began).Seconds(), role.name, now[goroutines], now[resident]/1e6, now[openFiles])
			if n == soakLooks/4 {
				warm[i] = now
			}
		}
		s.logRedis()
	}
	close(done)
	go func() {
		tills.Wait()
		close(tillsEnd)
		s.payers.Wait()
		close(payersEnd)
	}()
	for what, end := range map[string]chan struct{}{"a rail has no answer": tillsEnd, "a payer has not seen the end of a session": payersEnd} {
		select {
		case <-end:
		case <-time.After(soakLifetime*time.Second + fixture.Patience):
			t.Error(what)
			leave()
			<-end
		}
	}
	t.Log(s.audit())
	t.Log(rail.audit())
	t.Log(s.auditDays(began))
	s.logRedis()
	for i, role := range roles {
		eventuallySees(t, role.name+" takes no more than when it had warmed up", func() (string, bool) {
			now := gauges(t, role.ops)
			return fmt.Sprint(now, ", and before ", warm[i]), now[goroutines] <= warm[i][goroutines]+50 && now[openFiles] <= warm[i][openFiles]+50 &&
				now[resident] <= warm[i][resident]+spareMemory/2
		})
	}
}

// till makes one order after the other.
func (s *soak) till(ctx context.Context, done chan struct{}, n int, rail *soakRail) {
	c := newCaller()
	tick := time.NewTicker(soakPause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		o := &soakOrder{seller: (n + i) % len(s.keys)}
		o.name, o.key, o.cents = fmt.Sprintf("order-%d-%d", n, i), *s.keys[o.seller].Load(), 1+(n*7919+i*10_007)%1_000_000
		id, ok := s.charge(done, c, &o.failoverOrder, n)
		if again, sure := s.charge(done, c, &o.failoverOrder, n+1); ok && sure {
			id = again // another one only if the first is lost
			s.payers.Go(func() { s.pay(ctx, s.replicas[n%2].public, id, i%2 == 0) })
			s.end(ctx, done, c, o, id, n, i, rail)
		}
		o.told = time.Now()
		s.mu.Lock()
		s.sold = append(s.sold, o)
		s.mu.Unlock()
	}
}

// end has seven of ten orders paid, cancels two and leaves one. The till learns then if the session is lost.
func (s *soak) end(ctx context.Context, done chan struct{}, c caller, o *soakOrder, id string, n, i int, rail *soakRail) {
	switch i % 10 {
	case 8:
		o.ends = session.Expired
	case 3, 6:
		got, ok := s.insist(done, func(try int) (fixture.Answer, error) {
			return c.call(s.replicas[(n+try)%2].public, http.MethodPost, sessions+"/"+id+"/cancel", o.key, "")
		})
		if ok && got.Status == http.StatusOK {
			o.ends = session.Cancelled
		}
	default:
		rail.pay(ctx, c, o, id, n, i)
	}
}

// pay is a payer, who wants to see the end of a session, or that there is none.
func (s *soak) pay(ctx context.Context, base, id string, stream bool) {
	for status := 0; status != http.StatusNotFound; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+publicPath+id, nil)
		if err != nil {
			s.t.Error(err)
			return
		}
		if stream {
			request.Header.Set("Accept", "text/event-stream")
		}
		response, err := s.streams.Do(request)
		if err == nil {
			status = response.StatusCode
			lines := bufio.NewScanner(response.Body)
			for lines.Scan() {
				if tellsEnd(lines.Text()) {
					s.shown.Add(1)
					status = http.StatusNotFound
					break
				}
			}
			_ = response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// tellsEnd reports whether a line of a public status, or of a stream of them, has a final one.
func tellsEnd(line string) bool {
	return slices.ContainsFunc([]session.Status{session.Completed, session.Cancelled, session.Expired, session.Failed}, func(final session.Status) bool {
		return strings.Contains(line, `"status":"`+string(final)+`"`)
	})
}

// rotate replaces a seller's key. The old one stays valid for the orders under way.
func (s *soak) rotate(seller int) {
	s.t.Helper()
	fresh := s.answered(http.StatusOK, s.replicas[0].public, http.MethodPost, rotate, *s.keys[seller].Load(), "").Text("fullKey")
	shared.secret(fresh)
	s.keys[seller].Store(&fresh)
}

// failOver kills the master of Redis, and starts it again as a replica once the other one serves.
func (s *soak) failOver() {
	s.t.Helper()
	master, replica := s.pairs.roles(s.t, 0)
	s.killed = append(s.killed, time.Now())
	master.Kill()
	s.answered(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, *s.keys[0].Load(), `{"amountCents":100}`)
	s.pairs.rejoin(s.t, 0, master, replica)
}

func (s *soak) logRedis() {
	s.t.Helper()
	master, _ := s.pairs.roles(s.t, 0)
	memory, err := master.keeper.Info(s.t.Context(), "memory").Result()
	s.must(err)
	s.t.Logf("          Redis        %d keys, %s", master.keeper.DBSize(s.t.Context()).Val(), fact(memory, "used_memory_human"))
}

// audit compares every order with its session and with what the receivers have heard. A failover may lose what was acknowledged in
// the seconds before, except settlements.
func (s *soak) audit() string {
	s.t.Helper()
	counts, lost := map[session.Status]int{}, 0
	var ends []string
	for _, o := range s.sold {
		var alive []string
		for _, id := range o.ids {
			got := s.answered(0, s.replicas[0].public, http.MethodGet, sessions+"/"+id, *s.keys[o.seller].Load(), "")
			if got.Status == http.StatusNotFound {
				continue
			}
			alive = append(alive, id)
			if status := session.Status(got.Text("status")); status.Final() {
				counts[status]++
				ends = append(ends, id)
				if status == o.ends {
					o.ends = ""
				}
			}
		}
		switch {
		case len(alive) > 1:
			s.t.Errorf("%s is charged more than once: %s", o.name, strings.Join(alive, ", "))
		case o.ends == "":
		case o.ends != session.Completed && slices.ContainsFunc(s.killed, func(at time.Time) bool { return at.Sub(o.told).Abs() < fixture.Patience }):
			lost++
		default:
			s.t.Errorf("%s %v: its end should be %s", o.name, alive, o.ends)
		}
	}
	eventuallySees(s.t, "the merchants have heard of every end", func() (string, bool) {
		heard := map[string]bool{}
		for _, attempt := range s.hooks.Attempts() {
			if attempt.Status == http.StatusOK {
				heard[attempt.SessionID()] = true
			}
		}
		missing := slices.DeleteFunc(slices.Clone(ends), func(id string) bool { return heard[id] })
		return fmt.Sprintf("%d missing, such as %v", len(missing), missing[:min(3, len(missing))]), len(missing) == 0
	})
	return fmt.Sprintf("%d orders: %v, %d acknowledged and lost in %d failovers; none twice; every end was heard by its merchant, %d seen by payers; "+
		"%d calls got 503, the slowest answer took %s", len(s.sold), counts, lost, len(s.killed), s.shown.Load(), s.refusals.Load(), s.slowest)
}
