//go:build faults

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	days "github.com/merchant-operator/merchant-operator/internal/payments"
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
	// soakReturns is after how many orders a till asks for refunds in the same way again.
	soakReturns = 7
)

// soak is a busy day of a few shops: tills charge each order twice, then a rail is paid, or they cancel or leave it, and ask for refunds; payers poll or
// hold a stream, keys are rotated, receivers cut connections off, and the master of Redis is killed.
type soak struct {
	*failover

	keys    []sellerKey
	moved   *railJournal
	streams *http.Client
	payers  sync.WaitGroup
	shown   atomic.Int64 // ends that a payer has seen
	rotated atomic.Int64 // refunds that another key asked for than the one of the charge

	killed []time.Time
	sold   []*soakOrder
}

// sellerKey is the key of a seller. A rotation refuses the old key at once, so it waits for the requests under way.
type sellerKey struct {
	using sync.RWMutex
	text  string
}

// use returns the key. It is not rotated before it is released.
func (k *sellerKey) use() (text string, release func()) {
	k.using.RLock()
	return k.text, k.using.RUnlock
}

// soakOrder is an order with the end that its session must have.
type soakOrder struct {
	failoverOrder

	seller       int
	acknowledged time.Time // the end, or the charge if it is left
	ends         session.Status
	id           string
	asked        map[string]int // cents by refund id: what was acknowledged
}

// TestSoak takes as long as -soak says, and shows what the roles take meanwhile. At the end they must not take more than when they
// had warmed up, and every charge is accounted for.
func TestSoak(t *testing.T) {
	p := watchedBySentinels(t)
	flags := []string{"--max-streams-per-address", "10000"}
	f := newFailover(t, p, 2, flags, func(m *v1alpha1.Merchant) {
		m.Spec.Sessions = v1alpha1.SessionSettings{LifetimeSeconds: soakLifetime}
		if m.Name == "seller-1" {
			m.Spec.TimeZone = "Asia/Kolkata" // its days are others
		}
	})
	s := &soak{failover: f, keys: make([]sellerKey, len(f.sellers)), moved: newRailJournal(t), streams: &http.Client{}}
	for n, own := range f.sellers {
		s.keys[n].text = own.key
	}
	rail := newSoakRail(s)
	s.settlesEverywhere(rail.token)
	s.hooks.die(func(n int) bool { return n%20 == 0 })

	began, done, tillsEnd, payersEnd := time.Now(), make(chan struct{}), make(chan struct{}), make(chan struct{})
	patient, leave := context.WithCancel(t.Context())
	stopRail := rail.payBack(patient)
	defer stopRail()
	defer leave() // before stopRail waits
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
	rail.awaitPaidBack()
	stopRail()
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
	var returned []*soakOrder // the customers come back in the evening
	for i := 0; ; i++ {
		select {
		case <-done:
			for _, o := range returned {
				s.askForRefund(ctx, c, o, n, "evening", `{}`)
			}
			return
		case <-tick.C:
		}
		o := &soakOrder{seller: (n + i) % len(s.keys), asked: map[string]int{}}
		o.name, o.cents = fmt.Sprintf("order-%d-%d", n, i), 1+(n*7919+i*10_007)%1_000_000
		if id, ok := s.chargeTwice(done, c, o, n); ok {
			s.payers.Go(func() { s.pay(ctx, s.replicas[n%2].public, id, i%2 == 0) })
			o.id = id
			s.end(ctx, done, c, o, id, n, i, rail)
		}
		if o.ends == session.Completed && i%soakReturns == soakReturns-1 {
			returned = append(returned, o)
		} else if o.ends == session.Completed {
			s.askForRefunds(ctx, c, o, n, i%soakReturns)
		}
		o.acknowledged = time.Now()
		s.mu.Lock()
		s.sold = append(s.sold, o)
		s.mu.Unlock()
	}
}

// chargeTwice charges an order twice. It has another session afterwards only if the first one is lost.
func (s *soak) chargeTwice(done chan struct{}, c caller, o *soakOrder, n int) (id string, ok bool) {
	key, release := s.keys[o.seller].use()
	defer release()
	o.key = key
	if _, ok := s.charge(done, c, &o.failoverOrder, n); !ok {
		return "", false
	}
	return s.charge(done, c, &o.failoverOrder, n+1)
}

// end has seven of ten orders paid, cancels two and leaves one. The till learns then if the session is lost.
func (s *soak) end(ctx context.Context, done chan struct{}, c caller, o *soakOrder, id string, n, i int, rail *soakRail) {
	switch i % 10 {
	case 8:
		o.ends = session.Expired
	case 3, 6:
		key, release := s.keys[o.seller].use()
		got, ok := s.insist(done, func(try int) (fixture.Answer, error) {
			return c.call(s.replicas[(n+try)%2].public, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
		})
		release()
		if ok && got.Status == http.StatusOK {
			o.ends = session.Cancelled
			rail.payRefused(ctx, c, o, id, n, "late")
		}
	case 1:
		rail.payRefused(ctx, c, o, id, n, "wrong")
		rail.pay(ctx, c, o, id, n, i)
	default:
		rail.pay(ctx, c, o, id, n, i)
	}
}

// askForRefunds asks for refunds of a paid order: all of it, in parts, twice at once, or too much.
func (s *soak) askForRefunds(ctx context.Context, c caller, o *soakOrder, n, way int) {
	half := fmt.Sprintf(`{"amountCents":%d,"reason":"cold"}`, (o.cents+1)/2)
	switch way {
	case 0:
		s.askForRefund(ctx, c, o, n, "whole", `{}`)
	case 1:
		s.askForRefund(ctx, c, o, n, "half", half)
		s.askForRefund(ctx, c, o, n, "rest", `{}`)
	case 2:
		s.askAtOnce(ctx, c, o, "same", "same")
		if ctx.Err() == nil && len(o.asked) != 1 {
			s.t.Errorf("one Idempotency-Key of %s, used twice at once, is %v", o.id, o.asked)
		}
	case 3:
		s.askAtOnce(ctx, c, o, "one", "other")
	case 4:
		s.askForRefund(ctx, c, o, n, "half", half)
		s.askForRefund(ctx, c, o, n, "more-than-the-rest", fmt.Sprintf(`{"amountCents":%d}`, o.cents))
	case 5:
		s.askForRefund(ctx, c, o, n, "too-much", fmt.Sprintf(`{"amountCents":%d}`, o.cents+1))
	}
	if ctx.Err() == nil && (len(o.asked) == 0) != (way == 5) {
		s.t.Errorf("of the refunds of %s in way %d %v were accepted", o.id, way, o.asked)
	}
}

// askAtOnce asks for all of an order under two keys at once.
func (s *soak) askAtOnce(ctx context.Context, c caller, o *soakOrder, names ...string) {
	var asking sync.WaitGroup
	for n, name := range names {
		asking.Go(func() { s.askForRefund(ctx, c, o, n, name, `{}`) })
	}
	asking.Wait()
}

// askForRefund asks for a refund until it is answered, and once more. The key is the seller's of now, which may not be the one of the charge.
func (s *soak) askForRefund(ctx context.Context, c caller, o *soakOrder, n int, name, body string) {
	key, release := s.keys[o.seller].use()
	defer release()
	first := ""
	for again := range 2 {
		got, ok := s.insist(ctx.Done(), func(try int) (fixture.Answer, error) {
			return c.call(s.replicas[(n+again+try)%2].public, http.MethodPost, sessions+"/"+o.id+"/refunds", key, body, "Idempotency-Key", name)
		})
		id := got.Text("refundId")
		switch {
		case !ok:
			return
		case got.Status == http.StatusConflict && got.Header.Get("Error-Code") == "refund_exceeds_payment" && first == "":
			continue
		case got.Status != http.StatusCreated || first != "" && id != first:
			s.t.Errorf("the refund %s of %s, which is %q, gets %d %v", name, o.id, first, got.Status, got.Body)
			return
		}
		first = id
		s.mu.Lock()
		o.asked[id] = cents(got)
		s.mu.Unlock()
	}
	if first != "" && key != o.key {
		s.rotated.Add(1)
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
				if hasFinalStatus(lines.Text()) {
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

// hasFinalStatus reports whether a line of a public status, or of a stream of them, has a final one.
func hasFinalStatus(line string) bool {
	return slices.ContainsFunc([]session.Status{session.Completed, session.Cancelled, session.Expired, session.Failed}, func(final session.Status) bool {
		return strings.Contains(line, `"status":"`+string(final)+`"`)
	})
}

// rotate replaces a seller's key.
func (s *soak) rotate(seller int) {
	s.t.Helper()
	key := &s.keys[seller]
	key.using.Lock()
	defer key.using.Unlock()
	key.text = shared.secret(s.answered(http.StatusOK, s.replicas[0].public, http.MethodPost, rotate, key.text, "").Text("fullKey"))
}

// failOver kills the master of Redis, and starts it again as a replica once the other one serves.
func (s *soak) failOver() {
	s.t.Helper()
	master, replica := s.pairs.roles(s.t, 0)
	s.killed = append(s.killed, time.Now())
	master.Kill()
	s.answered(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, s.keys[0].text, `{"amountCents":100}`)
	s.pairs.rejoin(s.t, 0, master, replica)
}

func (s *soak) logRedis() {
	s.t.Helper()
	master, _ := s.pairs.roles(s.t, 0)
	memory, err := master.keeper.Info(s.t.Context(), "memory").Result()
	s.must(err)
	s.t.Logf("          Redis        %d keys, %s", master.keeper.DBSize(s.t.Context()).Val(), fact(memory, "used_memory_human"))
}

// endEvents are the events of the ends of sessions.
var endEvents = []v1alpha1.WebhookEvent{
	v1alpha1.EventSessionCompleted, v1alpha1.EventSessionCancelled, v1alpha1.EventSessionExpired, v1alpha1.EventSessionFailed,
}

// audit compares every order with its session and with what the receivers got. A failover may lose what was acknowledged in
// the seconds before, except settlements.
func (s *soak) audit() string {
	s.t.Helper()
	counts, lost := map[session.Status]int{}, 0
	var ends []string
	for _, o := range s.sold {
		var alive []string
		for _, id := range o.ids {
			got := s.answered(0, s.replicas[0].public, http.MethodGet, sessions+"/"+id, s.keys[o.seller].text, "")
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
		case o.ends != session.Completed && slices.ContainsFunc(s.killed, func(at time.Time) bool { return at.Sub(o.acknowledged).Abs() < fixture.Patience }):
			lost++
		default:
			s.t.Errorf("%s %v: its end should be %s", o.name, alive, o.ends)
		}
	}
	eventuallySees(s.t, "the merchants have got every end", func() (string, bool) {
		delivered := map[string]bool{}
		for _, attempt := range s.hooks.Attempts() {
			if attempt.Status == http.StatusOK && slices.Contains(endEvents, v1alpha1.WebhookEvent(attempt.Type)) {
				delivered[attempt.SessionID()] = true
			}
		}
		missing := slices.DeleteFunc(slices.Clone(ends), func(id string) bool { return delivered[id] })
		return fmt.Sprintf("%d missing, such as %v", len(missing), missing[:min(3, len(missing))]), len(missing) == 0
	})
	return fmt.Sprintf("%d orders: %v, %d acknowledged and lost in %d failovers; none twice; every end was delivered to its merchant, %d seen by payers; "+
		"%d calls got 503, the slowest answer took %s", len(s.sold), counts, lost, len(s.killed), s.shown.Load(), s.retries.Load(), s.slowest)
}

// soakRail is the rail of the soak: it holds a session before it moves money, loses answers, reports twice, and pays back what it owes, most of it as it
// reads in its list.
type soakRail struct {
	*soak

	token string
	back  *refundRail

	mu      sync.Mutex
	prices  map[string]int  // cents of the payments that were reported, "<session id> <reference>"
	refused map[string]int  // those of them that were refused
	byHand  map[string]bool // those of these that a person pays back
	tooLate int             // sessions that were about to expire, so that no money has moved
}

const maxSoakHold = 20 // seconds

func newSoakRail(s *soak) *soakRail {
	return &soakRail{soak: s, token: s.railToken(), prices: map[string]int{}, refused: map[string]int{}, byHand: map[string]bool{}}
}

// payBack has the rail pay back what it owes until stop, which waits for that.
func (r *soakRail) payBack(ctx context.Context) (stop func()) {
	r.back = &refundRail{
		ledger: newLedger(), t: r.t, leaves: r.leaves,
		ask: func(c caller, method, path, body string, also ...int) (fixture.Answer, bool) {
			got, ok := r.insist(ctx.Done(), func(try int) (fixture.Answer, error) {
				return c.call(r.replicas[try%2].internal, method, path, r.token, body)
			})
			if ok && got.Status != http.StatusOK && !slices.Contains(also, got.Status) {
				r.t.Errorf("%s %s %s gets %d %s", method, path, body, got.Status, got.Raw)
				return got, false
			}
			return got, ok
		},
		lose: func(c caller, method, path, body string) {
			_, _ = c.call(r.replicas[1].internal, method, path, r.token, body)
		},
		price: func(payment string) int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.prices[payment]
		},
	}
	return callers(1, func(c caller, _, _ int) {
		r.back.look(c)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	})
}

// leaves keeps one refund of sixteen in the list, and those that a person pays back.
func (r *soakRail) leaves(owed owedRefund) bool {
	r.mu.Lock()
	byHand := r.byHand[owed.moved().payment]
	r.mu.Unlock()
	name := fnv.New32a()
	fmt.Fprint(name, owed.RefundRef)
	return byHand || name.Sum32()%16 == 0
}

// awaitPaidBack waits until the rail owes no more than it leaves.
func (r *soakRail) awaitPaidBack() {
	r.t.Helper()
	eventuallySees(r.t, "the rail has paid back what it owes", func() (string, bool) {
		left := slices.DeleteFunc(r.back.list(), r.leaves)
		return fmt.Sprintf("%d refunds are left, such as %+v", len(left), left[:min(3, len(left))]), len(left) == 0
	})
}

// setPrice writes down the price of a payment whose money moves; 0: it was sent back, for the session is lost.
func (r *soakRail) setPrice(payment string, cents int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.prices[payment] = cents; cents == 0 {
		delete(r.prices, payment)
	}
}

// pay pays an order, number i of a till. What it has moved it reports until it has an answer.
func (r *soakRail) pay(ctx context.Context, c caller, o *soakOrder, id string, n, i int) {
	held, ok := r.ask(ctx, c, id, "/hold", n, fmt.Sprintf(`{"paymentRef":%q,"seconds":%d}`, o.name, maxSoakHold))
	code := held.Header.Get("Error-Code")
	switch {
	case !ok || held.Status == http.StatusNotFound: // the session is lost
		return
	case code == "expires_too_soon" || code == "session_ended":
		o.ends = session.Expired
		r.mu.Lock()
		r.tooLate++
		r.mu.Unlock()
		return
	case held.Status != http.StatusOK:
		r.t.Errorf("a hold got %d %v", held.Status, held.Body)
		return
	}
	r.moved.write(o.seller, id, o.name, o.cents, "")
	r.setPrice(id+" "+o.name, o.cents)
	if i%3 == 0 {
		r.loseAnswer(c, id, n, payment(o.name, o.cents))
	}
	for range 1 + i%2 {
		got, ok := r.ask(ctx, c, id, "/settlement", n, payment(o.name, o.cents))
		applied, _ := got.Body["applied"].(bool)
		switch {
		case ok && got.Status == http.StatusOK && applied:
			o.ends = session.Completed
		case ok && got.Status == http.StatusNotFound:
			r.moved.write(o.seller, id, o.name, -o.cents, "") // sent back: the session is lost
			r.setPrice(id+" "+o.name, 0)
			return
		default:
			r.t.Errorf("a settlement got %d %v", got.Status, got.Body)
			return
		}
	}
	if i%10 == 5 {
		r.payAgain(ctx, c, o, id, n, i)
	}
}

// payAgain moves money a second time, without a hold. Every other such payment a person pays back, in two parts, whatever the list says.
func (r *soakRail) payAgain(ctx context.Context, c caller, o *soakOrder, id string, n, i int) {
	ref, cents := o.name+"-again", o.cents+2
	byHand := i%20 == 5
	if byHand {
		r.mu.Lock()
		r.byHand[id+" "+ref] = true
		r.mu.Unlock()
	}
	if !r.payRefused(ctx, c, o, id, n, "again") || !byHand {
		return
	}
	for part, cents := range []int{1, cents - 1} {
		refund := fmt.Sprintf(`{"paymentRef":%q,"refundRef":"%s-%d","amountCents":%d}`, ref, ref, part, cents)
		for range 2 {
			if got, ok := r.ask(ctx, c, id, "/refunds", n, refund); !ok || got.Status != http.StatusOK {
				r.t.Errorf("a refund got %d %v", got.Status, got.Body)
			}
		}
	}
}

// payRefused moves another amount than that of the order, which the session does not take, whatever has become of it. false: the session is lost, or
// the test has failed.
func (r *soakRail) payRefused(ctx context.Context, c caller, o *soakOrder, id string, n int, why string) bool {
	ref, cents := o.name+"-"+why, o.cents+2
	r.setPrice(id+" "+ref, cents)
	for range 2 {
		got, ok := r.ask(ctx, c, id, "/settlement", n, payment(ref, cents))
		switch {
		case ok && got.Status == http.StatusNotFound && why != "again": // only a completed session outlives a failover
			r.setPrice(id+" "+ref, 0)
			return false
		case !ok || got.Text("action") != "REFUND_REQUIRED":
			r.t.Errorf("the %s payment got %d %v", why, got.Status, got.Body)
			return false
		}
	}
	r.moved.write(o.seller, id, ref, cents, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[id+" "+ref] = cents
	return true
}

func payment(ref string, cents int) string {
	return fmt.Sprintf(`{"paymentRef":%q,"outcome":"COMPLETED","amountCents":%d}`, ref, cents)
}

// ask sends a request about a session until it is answered.
func (r *soakRail) ask(ctx context.Context, c caller, id, path string, n int, body string) (fixture.Answer, bool) {
	return r.insist(ctx.Done(), func(try int) (fixture.Answer, error) {
		return c.call(r.replicas[(n+try)%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+path, r.token, body)
	})
}

// loseAnswer sends a report whose answer nobody reads.
func (r *soakRail) loseAnswer(c caller, id string, n int, body string) {
	_, _ = c.call(r.replicas[n%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", r.token, body)
}

// audit compares what went back with what was asked for and what was refused, to the cent, as the merchants, the rail, its list, its bank and the
// metrics have it.
func (r *soakRail) audit() string {
	r.t.Helper()
	for payment := range r.byHand {
		_, ref, _ := strings.Cut(payment, " ")
		r.back.pay(movement{payment, ref + "-0"}, 1)
		r.back.pay(movement{payment, ref + "-1"}, r.prices[payment]-1)
	}
	const owedPayments, owedRequests = "merchant_operator_refunds_owed", "merchant_operator_refunds_requested"
	owed, rest, open := map[movement]int{}, map[string]int{}, map[string]int{owedPayments: 0, owedRequests: 0}
	for _, one := range r.back.list() {
		if one.requested() {
			owed[one.moved()] = one.AmountCents
			open[owedRequests]++
		} else {
			rest[one.moved().payment] = one.AmountCents
			open[owedPayments]++
		}
	}
	counts, events, sellers := map[string]int{}, map[refundEvent]int{}, map[string]int{}
	for _, o := range r.sold {
		sellers[o.id] = o.seller
		payment := o.id + " " + o.name
		if r.prices[payment] == 0 {
			continue
		}
		read := r.answered(http.StatusOK, r.replicas[0].public, http.MethodGet, sessions+"/"+o.id, r.keys[o.seller].text, "")
		for id, status := range r.back.auditRequests(payment, read, o.asked, owed) {
			counts[status]++
			events[refundEvent{v1alpha1.EventRefundRequested, o.id, id}] = o.asked[id]
			if status == "REJECTED" || r.back.rejected[movement{payment, id}] {
				events[refundEvent{v1alpha1.EventRefundRejected, o.id, id}] = o.asked[id]
			}
		}
	}
	back := 0
	for payment := range r.prices {
		id, ref, _ := strings.Cut(payment, " ")
		r.back.auditRefunded(payment, ref, r.answered(http.StatusOK, r.replicas[1].internal, http.MethodGet, "/internal/v1/sessions/"+id, r.token, ""))
		if paid := r.back.paidBack(payment); r.refused[payment] != 0 && paid+rest[payment] != r.refused[payment] {
			r.t.Errorf("of %d cents of %s, which was refused, %d went back, and %d are owed", r.refused[payment], payment, paid, rest[payment])
		}
		back += r.back.paidBack(payment)
	}
	for moved, cents := range r.back.paid {
		id, ref, _ := strings.Cut(moved.payment, " ")
		events[refundEvent{v1alpha1.EventPaymentRefunded, id, moved.ref}] = cents
		r.moved.write(sellers[id], id, ref, -cents, moved.ref)
	}
	for payment := range rest {
		if r.refused[payment] == 0 {
			r.t.Errorf("%s is owed, and was not refused", payment)
		}
	}
	if len(owed) != counts["REQUESTED"] {
		r.t.Errorf("%d requests are owed, and merchants read %v", len(owed), counts)
	}
	for metric, many := range open {
		eventuallySees(r.t, metric+" is what the rail reads", func() (string, bool) {
			counted := map[string]float64{}
			for _, one := range readMetrics(r.t, r.dispatchers[0].ops)[metric].GetMetric() {
				counted[one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
			}
			return fmt.Sprint(counted, ", and not ", many), counted["0h"] == float64(many)
		})
	}
	r.auditRefundEvents(events)
	if len(r.byHand) == 0 || counts["CONFIRMED"] == 0 || counts["REJECTED"] == 0 || len(r.back.unasked) == 0 || r.rotated.Load() == 0 {
		r.t.Error("the soak has not met every kind of refund")
	}
	return fmt.Sprintf("%d requests for refunds: %v, %d by another key than that of the charge; %d payments were refused, %d paid back by hand; %d refunds unasked, %d rejected by the rail: "+
		"%d cents went back, as all books say, and %v are owed; all %d events of refunds arrived; %d payments came too late for a hold, and moved no money",
		counts["REQUESTED"]+counts["CONFIRMED"]+counts["REJECTED"], counts, r.rotated.Load(), len(r.refused), len(r.byHand), len(r.back.unasked), len(r.back.rejected),
		back, open, len(events), r.tooLate)
}

// refundEvent is an event of a refund, which is named by its reference.
type refundEvent struct {
	kind         v1alpha1.WebhookEvent
	session, ref string
}

// auditRefundEvents waits until these events have arrived, with these cents. Others of refunds may not, but for rejections whose answer was lost.
func (r *soakRail) auditRefundEvents(want map[refundEvent]int) {
	r.t.Helper()
	arrived, ids := map[refundEvent]int{}, map[refundEvent]string{}
	eventuallySees(r.t, "every event of a refund has arrived", func() (string, bool) {
		for _, attempt := range r.hooks.Attempts() {
			event, cents := parseRefundEvent(attempt)
			if attempt.Status != http.StatusOK || event.ref == "" {
				continue
			}
			if id := ids[event]; id != "" && id != attempt.ID {
				r.t.Errorf("%+v arrived as %s and as %s", event, id, attempt.ID)
			}
			arrived[event], ids[event] = cents, attempt.ID
		}
		var missing []refundEvent
		for event := range want {
			if arrived[event] == 0 {
				missing = append(missing, event)
			}
		}
		return fmt.Sprintf("%d missing, such as %+v", len(missing), missing[:min(3, len(missing))]), len(missing) == 0
	})
	for event, cents := range arrived {
		if _, known := want[event]; want[event] != cents && (known || event.kind != v1alpha1.EventRefundRejected) {
			r.t.Errorf("%+v says %d cents, want %d", event, cents, want[event])
		}
	}
}

// parseRefundEvent has no reference for other events.
func parseRefundEvent(attempt inbox.Attempt) (event refundEvent, cents int) {
	var body struct {
		Data struct {
			Refund struct {
				RefundRef   string `json:"refundRef"`
				AmountCents int    `json:"amountCents"`
			} `json:"refund"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(attempt.Body), &body) != nil {
		return refundEvent{}, 0
	}
	return refundEvent{v1alpha1.WebhookEvent(attempt.Type), attempt.SessionID(), body.Data.Refund.RefundRef}, body.Data.Refund.AmountCents
}

// railJournal is the rail's own book of the money that it has moved, one file for each seller: lines of "<session id>,<payment reference>,<cents>,
// <refund reference>", cents negative if they were sent back. It is safe for concurrent use.
type railJournal struct {
	t   *testing.T
	dir string
}

func newRailJournal(t *testing.T) *railJournal {
	t.Helper()
	return &railJournal{t, t.TempDir()}
}

func (j *railJournal) file(seller int) string {
	return filepath.Join(j.dir, fmt.Sprintf("seller-%d.csv", seller))
}

// write appends a line.
func (j *railJournal) write(seller int, id, ref string, cents int, refund string) {
	file, err := os.OpenFile(j.file(seller), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s,%s,%d,%s\n", id, ref, cents, refund) // one write: lines do not mix
		_ = file.Close()
	}
	if err != nil {
		j.t.Error(err)
	}
}

// auditDays compares what `kubectl merchant payments export` says of the days of the soak with what the rail has moved, to the cent. Another
// program adds up: day.py, which knows neither ours nor our tests. That it notices a cent is tried too.
func (s *soak) auditDays(began time.Time) string {
	s.t.Helper()
	plugin := filepath.Join(s.t.TempDir(), "kubectl-merchant")
	s.must(os.Symlink(shared.program, plugin))
	var all strings.Builder
	for n, own := range s.sellers {
		zone := own.merchant.Spec.TimeZone.Location()
		files := []string{s.moved.file(n)}
		for day := range daysFrom(began, zone) {
			files = append(files, s.exportDay(plugin, s.keys[n].text, day))
		}
		said, err := addUp(files...)
		if err != nil {
			s.t.Errorf("the days of seller %d in %s: %v: %s", n, zone, err, said)
		}
		fmt.Fprintf(&all, "seller %d in %s: %s", n, zone, said)
		if said, err := addUp(append([]string{s.oneCentMore(n)}, files[1:]...)...); err == nil {
			s.t.Errorf("a cent that is missing in the days of seller %d is not noticed: %s", n, said)
		}
	}
	return all.String()
}

// daysFrom are the days of a shop since a time.
func daysFrom(since time.Time, zone *time.Location) map[days.Day]bool {
	all := map[days.Day]bool{days.DayAt(time.Now(), zone): true}
	for at := since; at.Before(time.Now()); at = at.Add(time.Hour) {
		all[days.DayAt(at, zone)] = true
	}
	return all
}

// exportDay returns the file with the CSV of a day.
func (s *soak) exportDay(plugin, key string, day days.Day) (file string) {
	s.t.Helper()
	export := exec.CommandContext(s.t.Context(), plugin, "payments", "export", "--key-env", "--api-url", s.replicas[0].public, "--day", day.String())
	export.Env = append(os.Environ(), "API_KEY="+key)
	var out, said bytes.Buffer
	export.Stdout, export.Stderr = &out, &said
	if err := export.Run(); err != nil {
		s.t.Fatalf("export %s: %v: %s", day, err, &said)
	}
	file = filepath.Join(s.t.TempDir(), day.String()+".csv")
	s.must(os.WriteFile(file, out.Bytes(), 0o600))
	return file
}

// oneCentMore returns a copy of a journal whose last payment or refund has a cent more.
func (s *soak) oneCentMore(seller int) (file string) {
	s.t.Helper()
	journal, err := os.ReadFile(s.moved.file(seller))
	s.must(err)
	lines := strings.Split(strings.TrimSpace(string(journal)), "\n")
	payment := strings.Split(lines[len(lines)-1], ",")
	file = filepath.Join(s.t.TempDir(), "journal.csv")
	s.must(os.WriteFile(file, fmt.Appendf(journal, "%s,%s,1,%s\n", payment[0], payment[1], payment[3]), 0o600))
	return file
}

// addUp compares a journal with the CSV files of days, and returns what the program says.
func addUp(files ...string) (said string, err error) {
	out, err := exec.Command("python3", append([]string{"day.py"}, files...)...).CombinedOutput()
	return string(out), err
}
