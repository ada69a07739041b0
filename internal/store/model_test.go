package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// sessionModel is a session as it must be: the rules of package session, and a list of the recorded events.
type sessionModel struct {
	status  session.Status
	overdue bool
	ref     string // with its rail, as those of refused
	refused map[string]int64
	events  []v1alpha1.WebhookEvent
}

func (m *sessionModel) end(status session.Status, kind v1alpha1.WebhookEvent) {
	m.status, m.events = status, append(m.events, kind)
}

// expire expires the session if it is due, as each read must, and reports whether it was.
func (m *sessionModel) expire() bool {
	if m.status != session.Pending || !m.overdue {
		return false
	}
	m.end(session.Expired, v1alpha1.EventSessionExpired)
	return true
}

func (m *sessionModel) cancel() session.Decision {
	m.expire()
	decision := session.Cancel(m.status, false)
	if decision == session.Applied {
		m.end(session.Cancelled, v1alpha1.EventSessionCancelled)
	}
	return decision
}

func (m *sessionModel) settle(p session.Payment) session.Decision {
	m.expire()
	known, amount, ref := session.PaymentUnknown, int64(1250), p.Rail.Scope(p.Ref)
	if refused, ok := m.refused[ref]; ok && (m.ref != ref || p.Outcome == session.Completed) {
		known, amount = session.PaymentRefused, refused
	} else if m.ref == ref {
		known = session.PaymentSettled
	}
	decision := session.Settle(m.status, p.Outcome, known, p.AmountCents == amount)
	switch decision {
	case session.Applied:
		m.ref = ref
		if p.Outcome == session.Completed {
			m.end(p.Outcome, v1alpha1.EventSessionCompleted)
		} else {
			m.end(p.Outcome, v1alpha1.EventSessionFailed)
		}
	case session.Late:
		m.refused[ref], m.events = p.AmountCents, append(m.events, v1alpha1.EventLatePayment)
	case session.Mismatched:
		m.refused[ref], m.events = p.AmountCents, append(m.events, v1alpha1.EventPaymentMismatch)
	default:
	}
	return decision
}

// modelled is one session in Redis beside its model, and two replicas to change it by.
type modelled struct {
	sessionModel
	replicas []*services
	redis    *goredis.Client
	asks     admission.Request
	request  store.NewSession
	id       session.ID
	created  int64 // in milliseconds
}

// Whatever happens to a session in whatever order, Redis and the model agree after each step.
func TestSession_Model(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	c := client(t, server)
	rapid.Check(t, func(t *rapid.T) {
		m := &modelled{replicas: replicas, redis: c, asks: merchant(), request: newSession()}
		m.create(t)
		t.Repeat(map[string]func(*rapid.T){
			"cancel":      m.doCancel,
			"settle":      m.doSettle,
			"read":        m.doRead,
			"public read": m.doPublicRead,
			"replay":      m.doReplay,
			"sweep":       m.doSweep,
			"time passes": m.doPass,
			"":            m.check,
		})
		m.doSweep(t) // leaves nothing for the sweeps of the next session
		m.check(t)
	})
}

func (m *modelled) replica(t *rapid.T) *services {
	return rapid.SampledFrom(m.replicas).Draw(t, "replica")
}

func (m *modelled) create(t *rapid.T) {
	key, err := session.ParseIdempotencyKey("order-1001")
	m.request.Idempotency, m.request.EmitCreated = key, rapid.Bool().Draw(t, "record its creation")
	_, created, createErr := m.replica(t).CreateSession(t.Context(), m.asks, m.request)
	if err != nil || createErr != nil {
		t.Fatal(err, createErr)
	}
	m.created = created.Session.CreatedAt.UnixMilli()
	m.id, m.sessionModel = created.Session.ID, sessionModel{status: session.Pending, refused: map[string]int64{}}
	if m.request.EmitCreated {
		m.events = append(m.events, v1alpha1.EventSessionCreated)
	}
}

func (m *modelled) doCancel(t *rapid.T) {
	_, got, err := m.replica(t).Cancel(t.Context(), m.asks, m.id)
	if decision := m.cancel(); decision.Ended() != (err == nil) || (err != nil && !errors.Is(err, store.ErrSessionEnded)) {
		t.Fatalf("cancel: %v, want %s", err, decision)
	}
	if got.Status != m.status {
		t.Fatalf("cancel: %s, want %s", got.Status, m.status)
	}
}

func (m *modelled) doSettle(t *rapid.T) {
	reported := session.Payment{
		Rail:        rapid.SampledFrom([]session.Rail{bank, card}).Draw(t, "rail"),
		Ref:         rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ref"),
		Outcome:     rapid.SampledFrom([]session.Status{session.Completed, session.Failed}).Draw(t, "outcome"),
		AmountCents: rapid.SampledFrom([]int64{1250, 999}).Draw(t, "amount"),
	}
	got, err := m.replica(t).Settle(t.Context(), m.id, reported)
	decision := m.settle(reported)
	if decision == session.Conflict {
		if !errors.Is(err, store.ErrPaymentConflict) {
			t.Fatalf("settle: %+v, %v; want ErrPaymentConflict", got, err)
		}
		return
	}
	if err != nil || got.Applied != decision.Ended() || got.RefundRequired != decision.RefundRequired() ||
		got.Session.Status != m.status || paymentName(got.Session) != m.ref {
		t.Fatalf("settle: %+v, %v; want %s, %s by %q", got, err, decision, m.status, m.ref)
	}
}

// paymentName names the payment of a session; empty: it has none.
func paymentName(s session.Session) string {
	if s.PaymentRef == "" {
		return ""
	}
	return s.PaymentRail.Scope(s.PaymentRef)
}

func (m *modelled) doRead(t *rapid.T) {
	_, got, err := m.replica(t).Session(t.Context(), m.asks, m.id)
	if m.expire(); err != nil || got.Status != m.status || paymentName(got) != m.ref {
		t.Fatalf("read: %s by %q, %v; want %s by %q", got.Status, paymentName(got), err, m.status, m.ref)
	}
}

func (m *modelled) doPublicRead(t *rapid.T) {
	_, got, err := m.replica(t).PublicSession(t.Context(), payer(), m.id)
	if m.expire(); err != nil || got.Status != m.status {
		t.Fatalf("public read: %s, %v; want %s", got.Status, err, m.status)
	}
}

func (m *modelled) doReplay(t *rapid.T) {
	_, got, err := m.replica(t).CreateSession(t.Context(), m.asks, m.request)
	if m.expire(); err != nil || !got.Replayed || got.Session.ID != m.id || got.Session.Status != m.status {
		t.Fatalf("replay: %+v, %v; want %s", got, err, m.status)
	}
}

func (m *modelled) doSweep(t *rapid.T) {
	swept, err := m.replica(t).Sweep(t.Context(), m.id.Bucket(), 10)
	if expired := m.expire(); err != nil || (swept.Expired == 1) != expired || swept.Expired > 1 || swept.Corrupt > 0 {
		t.Fatalf("sweep: %+v, %v; want it to expire the session: %v", swept, err, expired)
	}
}

// doPass sets the session's expiry back, as if its time had passed.
func (m *modelled) doPass(t *rapid.T) {
	if m.status != session.Pending || m.overdue {
		t.Skip("its time does not matter any more")
	}
	m.overdue = true
	tag := merchantTag(m.asks.MerchantID)
	err := m.redis.HSet(t.Context(), tag+"session:"+m.id.String(), "x", m.created).Err()
	score := goredis.Z{Score: 1, Member: m.id.String()}
	if err = errors.Join(err, m.redis.ZAdd(t.Context(), tag+"expiry", score).Err()); err != nil {
		t.Fatal(err)
	}
}

func (m *modelled) check(t *rapid.T) {
	tag := merchantTag(m.asks.MerchantID)
	status, err := m.redis.HGet(t.Context(), tag+"session:"+m.id.String(), "s").Result()
	if ended := err == nil; ended != m.status.Final() || (ended && status != string(m.status)) {
		t.Fatalf("Redis holds %q, want %s", status, m.status)
	}
	if m.status == session.Pending && !slices.Contains(pendingIn(t, m.redis, m.id.Bucket()), m.id.String()) {
		t.Fatal("pending, and no sweep will examine it")
	}
	events := sessionEvents(t, m.redis, m.id)
	if got := eventKinds(events); !slices.Equal(got, m.events) {
		t.Fatalf("recorded %v, want %v", got, m.events)
	}
	ends := 0
	for i, event := range events {
		if event.Session.Sequence != int64(i+1) {
			t.Fatalf("event %d has the sequence %d", i+1, event.Session.Sequence)
		}
		if event.ID == feed.SessionEventID(m.id, feed.MarkEnded) {
			ends++
		}
	}
	if (ends == 1) != m.status.Final() || ends > 1 {
		t.Fatalf("%s, with %d events of its end", m.status, ends)
	}
}

// sessionCall is one call about the one session, and sessionAnswer what came of it.
type sessionCall struct {
	operation string          // read, cancel, settle, refund, hold, release or sweep
	payment   session.Payment // of settle, refund, hold and release
}

type sessionAnswer struct {
	status   session.Status // none for sweep, refund, hold and release, and for a conflict
	decision session.Decision
	expired  bool // by the sweep
}

// seen is how callers must see a session: one that ends once. Whether its time is over is for Redis to
// know: after the first answer EXPIRED all are.
var seen = porcupine.Model{
	Init: func() any { return seenState{status: session.Pending} },
	Step: func(state, input, output any) (bool, any) {
		s, call, answer := state.(seenState), input.(sessionCall), output.(sessionAnswer)
		return s.step(call, answer)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

type seenState struct {
	status   session.Status
	ref      string // with its rail
	holder   string
	refused  [2]bool // by the number of the payment
	failed   [2]bool // while the other one held the session
	refunded [2]bool
}

// heldBy is who holds the session as a payment sees it. No hold expires in this test.
func (s seenState) heldBy(ref string) session.Holder {
	switch s.holder {
	case "":
		return session.HeldByNobody
	case ref:
		return session.HeldBySelf
	default:
		return session.HeldByOther
	}
}

// payments are of two rails that gave them one reference.
var payments = [2]session.Payment{paid("1"), by(card, failed("1"))}

func (s seenState) step(call sessionCall, answer sessionAnswer) (bool, seenState) {
	if s.status == session.Pending && (answer.status == session.Expired || answer.expired) {
		s.status = session.Expired
		if call.operation == "sweep" {
			return true, s
		}
	} else if answer.expired {
		return false, s // it had ended before
	}
	switch call.operation {
	case "cancel":
		decision := session.Cancel(s.status, s.holder != "")
		if decision == session.Applied {
			s.status = session.Cancelled
		}
		return answer.status == s.status && (decision.Ended() && answer.decision == "" || answer.decision == decision), s
	case "hold", "release":
		return s.hold(call, answer)
	case "settle":
		number := slices.Index(payments[:], call.payment)
		known, ref := session.PaymentUnknown, call.payment.Rail.Scope(call.payment.Ref)
		if s.refused[number] {
			known = session.PaymentRefused
		} else if s.ref == ref {
			known = session.PaymentSettled
		} else if s.failed[number] && call.payment.Outcome == session.Failed {
			known = session.PaymentFailed
		} else if s.heldBy(ref) == session.HeldByOther {
			known = session.PaymentExcluded
		}
		decision := session.Settle(s.status, call.payment.Outcome, known, true)
		switch decision {
		case session.Applied:
			s.status, s.ref = call.payment.Outcome, ref
		case session.Late:
			s.refused[number] = true
		case session.Recorded:
			s.failed[number] = true
			decision = session.Ignored // which a rail cannot distinguish
		default:
		}
		if s.heldBy(ref) == session.HeldBySelf {
			s.holder = ""
		}
		return answer.status == s.status && answer.decision == decision, s
	case "refund": // always the same one, of the whole payment
		number, known := slices.Index(payments[:], call.payment), session.RefundUnknown
		if s.refunded[number] {
			known = session.RefundSame
		}
		taken := s.status == session.Completed && s.ref == call.payment.Rail.Scope(call.payment.Ref)
		decision := session.DecideRefund(known, s.refused[number] || taken, true, true)
		s.refunded[number] = s.refunded[number] || decision == session.Applied
		return answer.decision == decision, s
	case "read":
		return answer.status == s.status, s
	default: // a sweep that had nothing to do
		return true, s
	}
}

func (s seenState) hold(call sessionCall, answer sessionAnswer) (bool, seenState) {
	number, ref := slices.Index(payments[:], call.payment), call.payment.Rail.Scope(call.payment.Ref)
	if call.operation == "release" {
		decision := session.Release(s.status, s.heldBy(ref))
		if decision == session.Applied {
			s.holder = ""
		}
		return (answer.decision == session.InProgress) == (decision == session.InProgress), s
	}
	if answer.decision == session.Conflict && s.status == session.Pending {
		s.status = session.Expired // the answer is that the session has ended
	}
	decision := session.Hold(s.status, s.heldBy(ref), s.ref == ref || s.refused[number] || s.failed[number])
	if decision == session.Applied && answer.decision == tooSoon {
		return true, s
	}
	if decision == session.Applied {
		s.holder = ref
	}
	return answer.decision == decision, s
}

// tooSoon is the answer to a hold that would outlive the session.
const tooSoon session.Decision = "expires_too_soon"

// TestSession_Linearizable checks that what all callers see of one session, on two replicas at once, is what
// they could have seen one after the other. In some rounds its time is over in their midst.
func TestSession_Linearizable(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	const rounds, callers, callsEach = 32, 8, 12
	ends := map[session.Status]int{}
	for round := range rounds {
		asks := merchantIn(session.Bucket(round)) // so that its sweeps find this session only
		request := newSession()
		if round%2 == 0 {
			request.Lifetime = time.Duration(1+round/2%4) * time.Millisecond
		}
		id := mustCreate(t, replicas[0], asks, request).Session.ID
		histories := make([][]porcupine.Operation, callers)
		began := time.Now()
		start := make(chan struct{})
		var calling sync.WaitGroup
		for caller := range callers {
			calling.Go(func() {
				<-start
				for n := range callsEach {
					call := mixedCall(round+caller, n)
					operation := porcupine.Operation{ClientId: caller, Input: call, Call: int64(time.Since(began))}
					answer, err := ask(t, replicas[(caller+n)%2], asks, id, call)
					if err != nil {
						t.Error(err)
						return
					}
					operation.Output, operation.Return = answer, int64(time.Since(began))
					histories[caller] = append(histories[caller], operation)
				}
			})
		}
		close(start)
		calling.Wait()
		history := slices.Concat(histories...)
		if result := porcupine.CheckOperationsTimeout(seen, history, time.Minute); result != porcupine.Ok {
			t.Fatalf("round %d: the history of %d calls is %s, want one that fits a session", round, len(history), result)
		}
		_, last, err := replicas[0].Session(t.Context(), asks, id)
		must(t, err)
		ends[last.Status]++
	}
	t.Logf("%d rounds ended so: %v", rounds, ends)
}

// mixedCall mixes the calls. The first ones only read, so that a session's time may be over before a change comes.
func mixedCall(caller, n int) sessionCall {
	kind := (caller + n) % 8
	switch {
	case kind == 0:
		return sessionCall{operation: "sweep"}
	case n < 5 || kind == 1:
		return sessionCall{operation: "read"}
	case kind == 2:
		return sessionCall{operation: "cancel"}
	case kind == 5:
		return sessionCall{operation: "hold", payment: payments[caller%2]}
	case kind == 6:
		return sessionCall{operation: "release", payment: payments[caller%2]}
	case kind == 7:
		return sessionCall{operation: "refund", payment: payments[caller%2]}
	default:
		return sessionCall{operation: "settle", payment: payments[kind%2]}
	}
}

func ask(t *testing.T, s *services, asks admission.Request, id session.ID, call sessionCall) (sessionAnswer, error) {
	t.Helper()
	switch call.operation {
	case "cancel":
		_, got, err := s.Cancel(t.Context(), asks, id)
		if errors.Is(err, store.ErrSessionEnded) {
			return sessionAnswer{status: got.Status, decision: session.Conflict}, nil
		}
		if _, held := errors.AsType[store.HeldError](err); held {
			return sessionAnswer{status: got.Status, decision: session.InProgress}, nil
		}
		return sessionAnswer{status: got.Status}, err
	case "hold", "release":
		hold := store.Hold{Rail: call.payment.Rail, Ref: call.payment.Ref}
		if call.operation == "hold" {
			hold.Duration = time.Minute
		}
		_, err := s.Hold(t.Context(), id, hold)
		return holdAnswer(err)
	case "settle":
		got, err := s.Settle(t.Context(), id, call.payment)
		return sessionAnswer{status: got.Session.Status, decision: settledDecision(got)}, err
	case "refund":
		got, err := s.Refund(t.Context(), id, session.Refund{
			Rail: call.payment.Rail, Ref: "refund", PaymentRef: call.payment.Ref, AmountCents: call.payment.AmountCents,
		})
		return refundAnswer(got, err)
	case "sweep":
		swept, err := s.Sweep(t.Context(), id.Bucket(), 10)
		return sessionAnswer{expired: swept.Expired > 0}, err
	default:
		_, got, err := s.Session(t.Context(), asks, id)
		return sessionAnswer{status: got.Status}, err
	}
}

// holdAnswer is what a rail learns of the decision about its hold.
func holdAnswer(err error) (sessionAnswer, error) {
	_, held := errors.AsType[store.HeldError](err)
	switch {
	case err == nil:
		return sessionAnswer{decision: session.Applied}, nil
	case held:
		return sessionAnswer{decision: session.InProgress}, nil
	case errors.Is(err, store.ErrReferenceUsed):
		return sessionAnswer{decision: session.ReferenceUsed}, nil
	case errors.Is(err, store.ErrExpiresTooSoon):
		return sessionAnswer{decision: tooSoon}, nil
	case errors.Is(err, store.ErrNotHoldable):
		return sessionAnswer{decision: session.Conflict}, nil
	default:
		return sessionAnswer{}, err
	}
}

// refundAnswer is what a rail learns of the decision about its refund.
func refundAnswer(got store.Refunded, err error) (sessionAnswer, error) {
	switch {
	case errors.Is(err, store.ErrNoPayment):
		return sessionAnswer{decision: session.NoPayment}, nil
	case err == nil && got.Repeated:
		return sessionAnswer{decision: session.Repeated}, nil
	default:
		return sessionAnswer{decision: session.Applied}, err
	}
}

// settledDecision is the decision as far as a rail learns it from its answer.
func settledDecision(s store.Settlement) session.Decision {
	switch {
	case s.Applied && s.Repeated:
		return session.Repeated
	case s.Applied:
		return session.Applied
	case s.RefundRequired && s.Repeated:
		return session.RefundedAgain
	case s.RefundRequired:
		return session.Late
	default:
		return session.Ignored
	}
}

// orderCall is one call about an order, and orderAnswer what came of it.
type orderCall struct {
	operation string     // create, cancel or list
	id        session.ID // of cancel
}

type orderAnswer struct {
	session string // as an entry of orderState: that was created, or that cancel has found
	listed  string // the entries of list
	more    bool
}

// orderState is the sessions of an order, the newest first, each an entry "<id> <status>\n".
type orderState struct{ entries string }

// seenOrder is how callers must see an order: a list has each session that was created before, as all see it. Whether the time of a
// session is over is for Redis to know: after the first answer EXPIRED all are.
var seenOrder = porcupine.Model{
	Init: func() any { return orderState{} },
	Step: func(state, input, output any) (bool, any) {
		s, call, answer := state.(orderState), input.(orderCall), output.(orderAnswer)
		switch call.operation {
		case "create":
			return true, orderState{answer.session + s.entries}
		case "cancel":
			s = s.expire(answer.session)
			s.entries = strings.Replace(s.entries, call.id.String()+" PENDING", call.id.String()+" CANCELLED", 1)
			return strings.Contains(s.entries, answer.session), s
		default:
			s = s.expire(answer.listed)
			entries := strings.SplitAfter(s.entries, "\n")
			newest := entries[:min(len(entries)-1, store.MaxOrderSessions)]
			return answer.listed == strings.Join(newest, "") && answer.more == (len(entries)-1 > store.MaxOrderSessions), s
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// expire expires the sessions that are expired in an answer.
func (s orderState) expire(answer string) orderState {
	for entry := range strings.Lines(answer) {
		if id, expired := strings.CutSuffix(entry, " EXPIRED\n"); expired {
			s.entries = strings.Replace(s.entries, id+" PENDING", id+" EXPIRED", 1)
		}
	}
	return s
}

func orderEntry(read session.Session) string {
	return read.ID.String() + " " + string(read.Status) + "\n"
}

// Till and server ask two replicas at once what became of an order, while it is charged and cancelled, and sessions of it expire.
func TestOrderSessions_Linearizable(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	const rounds, callers, callsEach = 16, 4, 20
	listed, expired, more := 0, 0, 0
	for range rounds {
		asks := merchant()
		histories := make([][]porcupine.Operation, callers)
		began := time.Now()
		start := make(chan struct{})
		var calling sync.WaitGroup
		for caller := range callers {
			calling.Go(func() {
				<-start
				var last session.ID
				for n := range callsEach {
					call := orderCall{operation: []string{"create", "list", "create", "cancel", "list"}[(caller+n)%5]}
					if call.operation == "cancel" && last.IsZero() {
						call.operation = "list"
					}
					if call.operation == "cancel" {
						call.id = last
					}
					operation := porcupine.Operation{ClientId: caller, Input: call, Call: int64(time.Since(began))}
					answer, created, err := askOrder(t, replicas[(caller+n)%2], asks, call, time.Duration(1+n)*2*time.Millisecond)
					if err != nil {
						t.Error(err)
						return
					}
					if !created.IsZero() {
						last = created
					}
					operation.Output, operation.Return = answer, int64(time.Since(began))
					histories[caller] = append(histories[caller], operation)
				}
			})
		}
		close(start)
		calling.Wait()
		history := slices.Concat(histories...)
		for _, operation := range history {
			answer := operation.Output.(orderAnswer)
			listed += strings.Count(answer.listed, "\n")
			expired += strings.Count(answer.listed, "EXPIRED")
			if answer.more {
				more++
			}
		}
		if result := porcupine.CheckOperationsTimeout(seenOrder, history, time.Minute); result != porcupine.Ok {
			t.Fatalf("the history of %d calls is %s, want one that fits an order", len(history), result)
		}
	}
	if expired == 0 || more == 0 {
		t.Errorf("of %d listed sessions %d had expired, and %d lists had more: the test has not met them", listed, expired, more)
	}
}

func askOrder(t *testing.T, s *services, asks admission.Request, call orderCall, lifetime time.Duration) (answer orderAnswer, created session.ID, err error) {
	t.Helper()
	switch call.operation {
	case "create":
		_, got, err := s.CreateSession(t.Context(), asks, with(newSession(), func(n *store.NewSession) { n.Lifetime = lifetime }))
		return orderAnswer{session: orderEntry(got.Session)}, got.Session.ID, err
	case "cancel":
		_, got, err := s.Cancel(t.Context(), asks, call.id)
		if errors.Is(err, store.ErrSessionEnded) {
			err = nil
		}
		return orderAnswer{session: orderEntry(got)}, session.ID{}, err
	default:
		_, got, err := s.OrderSessions(t.Context(), asks, "1001")
		answer := orderAnswer{more: got.More}
		for _, one := range got.Sessions {
			answer.listed += orderEntry(one)
		}
		return answer, session.ID{}, err
	}
}
