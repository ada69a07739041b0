//go:build faults

package faults

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

const (
	// callsPerOrder are made about each order, and orderWindow orders are under way at once.
	callsPerOrder, orderWindow = 18, 6
	stormCallers               = 6
)

// storm is callers who charge, read, cancel and settle all the time, each order on every replica and several at once,
// and who repeat what got no answer, as good clients do.
type storm struct {
	*deployment

	merchant  *v1alpha1.Merchant
	key, rail string
	hooks     *receiver
	consumer  *consumer
	began     time.Time

	mu     sync.Mutex
	orders []*order
	calls  atomic.Int64 // that were answered
	maybes atomic.Int64 // that were not, or with 503
}

// order is one Idempotency-Key.
type order struct {
	number  int
	mu      sync.Mutex
	started int
	id      string
	history []porcupine.Operation
}

func (o *order) name() string { return fmt.Sprintf("order-%d", o.number) }

func newStorm(t *testing.T, replicas, dispatchers int) *storm {
	t.Helper()
	s := &storm{deployment: deploy(t, replicas, dispatchers, durable...), hooks: newReceiver(t), began: time.Now()}
	s.merchant = s.deployment.Merchant("coffee", func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: s.hooks.URL + "/hooks"}
	})
	s.key, s.rail = s.apiKey("till", "coffee"), s.railToken()
	s.consumer = newConsumer(s.deployment, s.merchant, s.key)
	s.hooks.VerifyWith(s.delivered("coffee-webhook", "secret"))
	s.settlesEverywhere(s.rail)
	return s
}

// settlesEverywhere waits until each replica knows that the rail may settle.
func (s *deployment) settlesEverywhere(rail string) {
	s.t.Helper()
	path := "/internal/v1/sessions/" + session.NewID("aaaaaaaaaaaa", false).String() + "/settlement"
	for _, r := range s.replicas {
		client := newCaller()
		eventually(s.t, r.name+" knows the rail", func() bool {
			got, err := client.call(r.internal, http.MethodPost, path, rail, `{"paymentRef":"x","outcome":"FAILED","amountCents":1}`)
			return err == nil && got.Status == http.StatusNotFound
		})
	}
}

// rage keeps the callers running while the fault is tried this many times, and returns when all are done.
func (s *storm) rage(times int, try func(n int)) {
	s.t.Helper()
	stop := callers(stormCallers, s.step)
	defer stop()
	unfollow := s.consumer.follow()
	defer unfollow()
	for n := range times {
		s.answered(60)
		try(n)
	}
	s.answered(60)
}

// answered waits until this many more calls were answered.
func (s *storm) answered(more int64) {
	s.t.Helper()
	target := s.calls.Load() + more
	eventually(s.t, "callers are answered again", func() bool { return s.calls.Load() >= target })
}

// unanswered waits until this many more calls were not.
func (s *storm) unanswered(more int64) {
	s.t.Helper()
	target := s.maybes.Load() + more
	eventually(s.t, "callers notice", func() bool { return s.maybes.Load() >= target })
}

// pick returns one of the orders under way, and a new one in the place of one that had its calls.
func (s *storm) pick(n int) *order {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.orders) < orderWindow {
		s.orders = append(s.orders, &order{number: len(s.orders)})
	}
	o := s.orders[len(s.orders)-1-n%orderWindow]
	o.mu.Lock()
	full := o.started >= callsPerOrder
	o.started++
	o.mu.Unlock()
	if full {
		o = &order{number: len(s.orders), started: 1}
		s.orders = append(s.orders, o)
	}
	return o
}

// step makes one call about one order.
func (s *storm) step(c caller, client, step int) {
	o := s.pick(step * 5)
	o.mu.Lock()
	id, turn := o.id, o.started+step
	o.mu.Unlock()
	call := orderCall{operation: "create"}
	if id != "" {
		switch turn % 9 {
		case 0, 1, 2, 3:
			call.operation = "read"
		case 4:
			call.operation = "cancel"
		case 5, 6, 7:
			call = orderCall{operation: "settle", payment: turn % len(payments)}
		}
	}
	operation := porcupine.Operation{ClientId: client, Call: int64(time.Since(s.began))}
	got, err := s.send(c, s.replicas[(step+client)%len(s.replicas)], o, id, call)
	operation.Return = int64(time.Since(s.began))
	if errors.Is(err, fixture.ErrNotSent) {
		return
	}
	if err != nil || unavailable(got) {
		s.maybes.Add(1)
		if call.operation == "read" {
			return // nothing can have come of it
		}
		call.maybe, operation.Return = true, math.MaxInt64 // or later, or never
	} else {
		s.calls.Add(1)
	}
	operation.Input, operation.Output = call, newOrderAnswer(got)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.history = append(o.history, operation)
	if !call.maybe && call.operation == "create" {
		o.id = cmp.Or(o.id, got.Text("sessionId"))
	}
}

func (s *storm) send(c caller, r *replica, o *order, id string, call orderCall) (fixture.Answer, error) {
	switch call.operation {
	case "create":
		return c.call(r.public, http.MethodPost, sessions, s.key, fmt.Sprintf(`{"amountCents":1250,"orderRef":%q}`, o.name()),
			"Idempotency-Key", o.name())
	case "cancel":
		return c.call(r.public, http.MethodPost, sessions+"/"+id+"/cancel", s.key, "")
	case "settle":
		payment := payments[call.payment]
		return c.call(r.internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", s.rail,
			fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":1250}`, payment.ref, payment.outcome))
	default:
		return c.call(r.public, http.MethodGet, sessions+"/"+id, s.key, "")
	}
}

func newOrderAnswer(got fixture.Answer) orderAnswer {
	replayed, _ := got.Body["idempotent"].(bool)
	applied, _ := got.Body["applied"].(bool)
	return orderAnswer{
		code: got.Status, id: got.Text("sessionId"), status: session.Status(got.Text("status")),
		replayed: replayed, applied: applied, refund: got.Text("action") == "REFUND_REQUIRED",
	}
}

// stormFaults kill or disconnect a process during charges.
func stormFaults() []fault {
	const promised = "nothing acknowledged is lost or doubled, each transition is delivered"
	during := func(times int, try func(*storm) func(n int)) func(*testing.T) (int, string) {
		return func(t *testing.T) (int, string) {
			t.Helper()
			s := newStorm(t, 2, 2)
			times := times * *intensity
			s.rage(times, try(s))
			return times, s.audit() + "; " + s.connections()
		}
	}
	return []fault{
		{"P1 P4 P5 P12", "kill -9 of an API replica", promised, during(3, killReplica)},
		{"P1 P4 P5 P12", "kill -9 of Redis, `appendfsync always`", promised, during(3, killRedis)},
		{"P1 P4 P5 P12", "kill -9 of Redis and of an API replica at once", promised, during(2, killBoth)},
		{"P1 P4 P5 P12", "every connection to Redis reset", promised, during(8, resetConnections)},
		{"P1 P4 P5 P12", "late answers of Redis", promised, during(4, delayAnswers)},
		{"P1 P4 P5 P12", "Redis frozen (SIGSTOP)", promised, during(3, freezeRedis)},
		{"P1 P4 P5 P12", "an API replica frozen (SIGSTOP)", promised, during(3, freezeReplica)},
		{"P4", "kill -9 of a dispatcher", promised, during(2, killDispatcher)},
		{"P4", "a dispatcher frozen (SIGSTOP)", promised, during(2, freezeDispatcher)},
		{"P4", "the receiver dies at every third event", promised, during(1, killReceiver)},
	}
}

func killReplica(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		victim.kill()
		s.answered(20) // by the other one
		victim.restart(s.t)
	}
}

func killRedis(s *storm) func(int) {
	return func(int) {
		s.redis.Kill()
		s.unanswered(10)
		s.redis.Start()
	}
}

func killBoth(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		s.redis.Kill()
		victim.kill()
		s.redis.Start()
		victim.restart(s.t)
	}
}

func resetConnections(s *storm) func(int) {
	return func(int) {
		s.toRedis.cut()
		s.toRedis.restore(s.t)
	}
}

// delayAnswers lets the scripts run, but their answers are late.
func delayAnswers(s *storm) func(int) {
	return func(int) {
		s.toRedis.poison(s.t, "latency", "downstream", `{"latency":900}`)
		s.unanswered(20)
		s.toRedis.heal()
	}
}

func freezeRedis(s *storm) func(int) {
	return func(int) {
		s.redis.Pause()
		s.unanswered(20)
		s.redis.Resume()
	}
}

func freezeReplica(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		victim.signal(s.t, syscall.SIGSTOP)
		s.unanswered(2) // its callers give up
		victim.signal(s.t, syscall.SIGCONT)
	}
}

// killDispatcher kills them in turn; the other one takes over the events of a killed one.
func killDispatcher(s *storm) func(int) {
	return func(n int) {
		victim := s.dispatchers[n%len(s.dispatchers)]
		victim.kill()
		s.answered(20)
		victim.restart(s.t)
	}
}

// freezeDispatcher freezes them in turn, until the other one has taken over the events.
func freezeDispatcher(s *storm) func(int) {
	holders := func() int64 { return s.keeper.HLen(s.t.Context(), redis.BucketKeyspace(0).Key("holders")).Val() }
	return func(n int) {
		victim := s.dispatchers[n%len(s.dispatchers)]
		eventually(s.t, "both dispatchers make heartbeats", func() bool { return holders() == int64(len(s.dispatchers)) })
		victim.signal(s.t, syscall.SIGSTOP)
		eventually(s.t, "the frozen dispatcher is removed", func() bool { return holders() < int64(len(s.dispatchers)) })
		s.answered(20)
		victim.signal(s.t, syscall.SIGCONT)
	}
}

func killReceiver(s *storm) func(int) {
	s.hooks.die(func(n int) bool { return n%3 == 0 })
	return func(int) { s.answered(300) }
}

// What is done about an order, which is one Idempotency-Key.
type orderCall struct {
	operation string // create, read, cancel or settle
	payment   int    // of settle: its number
	maybe     bool   // there was no answer that said what came of it
}

// orderAnswer is what the caller learned.
type orderAnswer struct {
	code            int
	id              string
	status          session.Status
	replayed        bool // of create
	applied, refund bool // of settle
}

// payments are what a rail may report of an order: money, none, and other money.
var payments = [3]struct {
	ref     string
	outcome session.Status
}{{"card", session.Completed}, {"bank", session.Failed}, {"cash", session.Completed}}

// orderState is an order as its callers must see it: one session that ends once.
type orderState struct {
	id      string // none yet: ""; created by a call without an answer: unseen
	status  session.Status
	ref     string
	refused [len(payments)]bool
}

const unseen = "?"

// stepOrder says whether an answer fits an order in this state, and what the state is after it.
func stepOrder(s orderState, call orderCall, got orderAnswer) (bool, orderState) {
	switch call.operation {
	case "create":
		return s.create(call, got)
	case "cancel":
		decision := session.Cancel(s.status, false)
		if decision == session.Applied {
			s.status = session.Cancelled
		}
		want := http.StatusOK
		if !decision.Ended() {
			want = http.StatusConflict
		}
		return call.maybe || got.code == want, s
	case "settle":
		return s.settle(call, got)
	default:
		return got.code == http.StatusOK && got.status == s.status && got.id == s.id, s
	}
}

func (s orderState) create(call orderCall, got orderAnswer) (bool, orderState) {
	isNew := s.id == ""
	if isNew {
		s.status, s.id = session.Pending, unseen
	}
	if call.maybe {
		return true, s
	}
	if s.id == unseen {
		s.id = got.id
	}
	return got.code == http.StatusCreated && got.replayed != isNew && got.id == s.id && got.status == s.status, s
}

func (s orderState) settle(call orderCall, got orderAnswer) (bool, orderState) {
	payment, known := payments[call.payment], session.PaymentUnknown
	if s.refused[call.payment] && (s.ref != payment.ref || payment.outcome == session.Completed) {
		known = session.PaymentRefused
	} else if s.ref == payment.ref {
		known = session.PaymentSettled
	}
	decision := session.Settle(s.status, payment.outcome, known, true)
	switch decision {
	case session.Applied:
		s.status, s.ref = payment.outcome, payment.ref
	case session.Late:
		s.refused[call.payment] = true
	default:
	}
	if decision == session.Conflict {
		return call.maybe || got.code == http.StatusConflict, s
	}
	return call.maybe || (got.code == http.StatusOK && got.status == s.status &&
		got.applied == decision.Ended() && got.refund == decision.RefundRequired()), s
}

func describeOrder(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) }

// orderModel checks the history of one order.
var orderModel = porcupine.Model{
	Init: func() any { return orderState{} },
	Step: func(state, input, output any) (bool, any) {
		return stepOrder(state.(orderState), input.(orderCall), output.(orderAnswer))
	},
	DescribeOperation: describeOrder,
}

// audit checks all that the storm has left: what callers learned, what Redis holds, what the receiver got.
func (s *storm) audit() (seen string) {
	s.t.Helper()
	c := newCaller()
	unknown := 0
	for _, o := range s.orders {
		if o.id == "" {
			continue // never acknowledged
		}
		// The last look is an operation like the others, and so are acknowledged sessions found again.
		operation := porcupine.Operation{ClientId: stormCallers, Call: int64(time.Since(s.began)), Input: orderCall{operation: "read"}}
		got, err := c.call(s.replicas[0].public, http.MethodGet, sessions+"/"+o.id, s.key, "")
		if err != nil {
			s.t.Fatal(err)
		}
		operation.Output, operation.Return = newOrderAnswer(got), int64(time.Since(s.began))
		o.history = append(o.history, operation)
		switch result := porcupine.CheckOperationsTimeout(orderModel, o.history, time.Minute); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			unknown++
		default:
			s.t.Errorf("%s: its callers saw what is not one session that ends once:\n%s", o.name(), o.describeHistory())
		}
	}
	if unknown > len(s.orders)/100 {
		s.t.Errorf("%d of %d histories are too long to be checked", unknown, len(s.orders))
	}
	sessions := s.auditSessions()
	events := s.expectedEvents(sessions)
	again := s.hooks.waitFor(s.t, events)
	s.consumer.audit(sessions)
	if s.consumer.conflicts > 0 {
		s.t.Errorf("the consumer got 409 %d times, and Redis has lost nothing", s.consumer.conflicts)
	}
	return fmt.Sprintf("%d orders, %d calls answered and %d not: every history linearizable, %d sessions, none twice or lost; "+
		"%d events, each recorded once and delivered, %d more than once; each once in the feed, for a consumer killed %d times",
		len(s.orders), s.calls.Load(), s.maybes.Load(), len(sessions), len(events), again, s.consumer.killed)
}

func (o *order) describeHistory() string {
	var text strings.Builder
	for _, operation := range slices.SortedFunc(slices.Values(o.history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		fmt.Fprintf(&text, "%d %10d..%d %s\n", operation.ClientId, operation.Call, operation.Return, describeOrder(operation.Input, operation.Output))
	}
	return text.String()
}

// auditSessions returns the fields of all sessions by id: at most one for each order, and that which was acknowledged.
func (s *storm) auditSessions() map[string]map[string]string {
	s.t.Helper()
	found := s.hashes(space(s.merchant)+"session:", s.keeper)
	byOrder := map[string]string{}
	for id, fields := range found {
		order := parseOrderRef(fields)
		if other, twice := byOrder[order]; twice {
			s.t.Errorf("%s made two sessions, %s and %s", order, id, other)
		}
		byOrder[order] = id
	}
	for _, o := range s.orders {
		if o.id != "" && byOrder[o.name()] != o.id {
			s.t.Errorf("%s was acknowledged as %s, and Redis has %q", o.name(), o.id, byOrder[o.name()])
		}
	}
	return found
}

// parseOrderRef returns the order of a session, from the field of what never changes.
func parseOrderRef(fields map[string]string) string {
	record, ok := session.ParseRecord(fields["f"])
	if !ok {
		return fields["f"]
	}
	return record.OrderRef
}

// expectedEvents returns the ids of the events that there must have been, by what Redis holds of the sessions. That each
// was recorded once is seen by the sequences, for a record is removed when its event is delivered.
func (s *deployment) expectedEvents(sessions map[string]map[string]string) []string {
	s.t.Helper()
	var all []string
	for text, fields := range sessions {
		id, err := session.ParseID(text)
		if err != nil {
			s.t.Fatal(err)
		}
		var events []string
		if session.Status(fields["s"]).Final() {
			events = append(events, feed.SessionEventID(id, feed.MarkEnded))
		}
		for field := range fields {
			if payment, refused := strings.CutPrefix(field, "l:"); refused {
				rail, ref, _ := session.ParseScoped(payment)
				events = append(events, feed.SessionEventID(id, feed.MarkLate(rail, ref)))
			}
		}
		if sequence, _ := strconv.Atoi(fields["q"]); sequence != len(events) {
			s.t.Errorf("%s %s: %d events are recorded, want %v", text, fields["s"], sequence, events)
		}
		all = append(all, events...)
	}
	return all
}

// hashes are those whose keys begin so, in any of the servers, by the rest of their keys.
func (s *deployment) hashes(prefix string, servers ...*goredis.Client) map[string]map[string]string {
	s.t.Helper()
	found := map[string]map[string]string{}
	for _, server := range servers {
		keys := server.Scan(s.t.Context(), 0, prefix+"*", 1000).Iterator()
		for keys.Next(s.t.Context()) {
			fields, err := server.HGetAll(s.t.Context(), keys.Val()).Result()
			s.must(err)
			found[strings.TrimPrefix(keys.Val(), prefix)] = fields
		}
		s.must(keys.Err())
	}
	return found
}
