//go:build faults

package faults

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
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

	seller       int
	acknowledged time.Time // the end, or the charge if it is left
	ends         session.Status
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
		o.acknowledged = time.Now()
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

// audit compares every order with its session and with what the receivers got. A failover may lose what was acknowledged in
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
		case o.ends != session.Completed && slices.ContainsFunc(s.killed, func(at time.Time) bool { return at.Sub(o.acknowledged).Abs() < fixture.Patience }):
			lost++
		default:
			s.t.Errorf("%s %v: its end should be %s", o.name, alive, o.ends)
		}
	}
	eventuallySees(s.t, "the merchants have got every end", func() (string, bool) {
		delivered := map[string]bool{}
		for _, attempt := range s.hooks.Attempts() {
			if attempt.Status == http.StatusOK {
				delivered[attempt.SessionID()] = true
			}
		}
		missing := slices.DeleteFunc(slices.Clone(ends), func(id string) bool { return delivered[id] })
		return fmt.Sprintf("%d missing, such as %v", len(missing), missing[:min(3, len(missing))]), len(missing) == 0
	})
	return fmt.Sprintf("%d orders: %v, %d acknowledged and lost in %d failovers; none twice; every end was delivered to its merchant, %d seen by payers; "+
		"%d calls got 503, the slowest answer took %s", len(s.sold), counts, lost, len(s.killed), s.shown.Load(), s.retries.Load(), s.slowest)
}

// soakRail is the rail of the soak: it holds a session before it moves money, loses answers, reports twice, and forgets some refunds.
type soakRail struct {
	*soak

	token string

	mu       sync.Mutex
	owed     map[refusedPayment]int // cents that it should have sent back
	refunded int                    // payments
	tooLate  int                    // sessions that were about to expire, so that no money has moved
}

type refusedPayment struct{ id, ref string }

const maxSoakHold = 20 // seconds

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
	r.moved.write(o.seller, id, o.name, o.cents)
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
			r.moved.write(o.seller, id, o.name, -o.cents) // sent back: the session is lost
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

// payAgain moves money a second time, without a hold. Of two such payments one is sent back, in two parts, and the other one forgotten.
func (r *soakRail) payAgain(ctx context.Context, c caller, o *soakOrder, id string, n, i int) {
	again := refusedPayment{id, o.name + "-again"}
	cents := o.cents + 2
	for range 2 {
		if got, ok := r.ask(ctx, c, id, "/settlement", n, payment(again.ref, cents)); !ok || got.Text("action") != "REFUND_REQUIRED" {
			r.t.Errorf("a second payment got %d %v", got.Status, got.Body)
			return
		}
	}
	forgets := i%20 == 5
	if !forgets {
		for part, cents := range []int{1, cents - 1} {
			refund := fmt.Sprintf(`{"paymentRef":%q,"refundRef":"%s-%d","amountCents":%d}`, again.ref, again.ref, part, cents)
			for range 2 {
				if got, ok := r.ask(ctx, c, id, "/refunds", n, refund); !ok || got.Status != http.StatusOK {
					r.t.Errorf("a refund got %d %v", got.Status, got.Body)
				}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if forgets {
		r.owed[again] = cents
	} else {
		r.refunded++
	}
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

// audit compares what is owed with what the rail has forgotten.
func (r *soakRail) audit() string {
	r.t.Helper()
	for again, cents := range r.owed {
		got := r.answered(http.StatusOK, r.replicas[0].internal, http.MethodGet, "/internal/v1/sessions/"+again.id, r.token, "")
		payments, _ := got.Body["payments"].([]any)
		if !slices.ContainsFunc(payments, func(one any) bool {
			p, _ := one.(map[string]any)
			return p["paymentRef"] == again.ref && p["amountCents"] == float64(cents) && p["action"] == "REFUND_REQUIRED"
		}) {
			r.t.Errorf("payment %s of %s is not owed: %v", again.ref, again.id, payments)
		}
	}
	eventuallySees(r.t, "what is owed is what was forgotten", func() (string, bool) {
		owed := map[string]float64{}
		for _, one := range readMetrics(r.t, r.dispatchers[0].ops)["merchant_operator_refunds_owed"].GetMetric() {
			owed[one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
		}
		return fmt.Sprint(owed, ", and not ", len(r.owed)), owed["0h"] == float64(len(r.owed))
	})
	return fmt.Sprintf("%d refunds were forgotten and are owed, no other; %d were confirmed; %d payments came too late for a hold, and moved no money", len(r.owed), r.refunded, r.tooLate)
}

// railJournal is the rail's own book of the money that it has moved, one file for each seller: lines of "<session id>,<payment reference>,<cents>",
// cents negative if they were sent back. It is safe for concurrent use.
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
func (j *railJournal) write(seller int, id, ref string, cents int) {
	file, err := os.OpenFile(j.file(seller), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s,%s,%d\n", id, ref, cents) // one write: lines do not mix
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
			files = append(files, s.exportDay(plugin, *s.keys[n].Load(), day))
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

// oneCentMore returns a copy of a journal whose last payment has a cent more.
func (s *soak) oneCentMore(seller int) (file string) {
	s.t.Helper()
	journal, err := os.ReadFile(s.moved.file(seller))
	s.must(err)
	lines := strings.Split(strings.TrimSpace(string(journal)), "\n")
	payment := strings.Split(lines[len(lines)-1], ",")
	file = filepath.Join(s.t.TempDir(), "journal.csv")
	s.must(os.WriteFile(file, fmt.Appendf(journal, "%s,%s,1\n", payment[0], payment[1]), 0o600))
	return file
}

// addUp compares a journal with the CSV files of days, and returns what the program says.
func addUp(files ...string) (said string, err error) {
	out, err := exec.Command("python3", append([]string{"day.py"}, files...)...).CombinedOutput()
	return string(out), err
}
