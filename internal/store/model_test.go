package store_test

import (
	"errors"
	"slices"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// sessionModel is a session as it must be: the rules of package session, and a list of what was told.
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

// look expires the session if it is due, as whoever looks at it must, and reports whether it was.
func (m *sessionModel) look() bool {
	if m.status != session.Pending || !m.overdue {
		return false
	}
	m.end(session.Expired, v1alpha1.EventSessionExpired)
	return true
}

func (m *sessionModel) cancel() session.Decision {
	m.look()
	decision := session.Cancel(m.status, false)
	if decision == session.Applied {
		m.end(session.Cancelled, v1alpha1.EventSessionCancelled)
	}
	return decision
}

func (m *sessionModel) settle(p session.Payment) session.Decision {
	m.look()
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
	asks     store.Admission
	wanted   store.NewSession
	id       session.ID
	created  int64 // in milliseconds
}

// Whatever happens to a session in whatever order, Redis and the model agree after each step.
func TestASessionDoesWhatItsModelDoes(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	c := client(t, server)
	rapid.Check(t, func(t *rapid.T) {
		m := &modelled{replicas: replicas, redis: c, asks: merchant(), wanted: newSession()}
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
	m.wanted.Idempotency, m.wanted.EmitCreated = key, rapid.Bool().Draw(t, "tell of its creation")
	_, created, createErr := m.replica(t).CreateSession(t.Context(), m.asks, m.wanted)
	if err != nil || createErr != nil {
		t.Fatal(err, createErr)
	}
	m.created = created.Session.CreatedAt.UnixMilli()
	m.id, m.sessionModel = created.Session.ID, sessionModel{status: session.Pending, refused: map[string]int64{}}
	if m.wanted.EmitCreated {
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
		got.Session.Status != m.status || paymentOf(got.Session) != m.ref {
		t.Fatalf("settle: %+v, %v; want %s, %s by %q", got, err, decision, m.status, m.ref)
	}
}

// paymentOf names the payment of a session; empty: it has none.
func paymentOf(s session.Session) string {
	if s.PaymentRef == "" {
		return ""
	}
	return s.PaymentRail.Scope(s.PaymentRef)
}

func (m *modelled) doRead(t *rapid.T) {
	_, got, err := m.replica(t).Session(t.Context(), m.asks, m.id)
	if m.look(); err != nil || got.Status != m.status || paymentOf(got) != m.ref {
		t.Fatalf("read: %s by %q, %v; want %s by %q", got.Status, paymentOf(got), err, m.status, m.ref)
	}
}

func (m *modelled) doPublicRead(t *rapid.T) {
	_, got, err := m.replica(t).PublicSession(t.Context(), payer(), m.id)
	if m.look(); err != nil || got.Status != m.status {
		t.Fatalf("public read: %s, %v; want %s", got.Status, err, m.status)
	}
}

func (m *modelled) doReplay(t *rapid.T) {
	_, got, err := m.replica(t).CreateSession(t.Context(), m.asks, m.wanted)
	if m.look(); err != nil || !got.Replayed || got.Session.ID != m.id || got.Session.Status != m.status {
		t.Fatalf("replay: %+v, %v; want %s", got, err, m.status)
	}
}

func (m *modelled) doSweep(t *rapid.T) {
	swept, err := sweep(t.Context(), m.replica(t).Store, m.id.Bucket(), 10)
	if expired := m.look(); err != nil || (swept.Expired == 1) != expired || swept.Expired > 1 || swept.Corrupt > 0 {
		t.Fatalf("sweep: %+v, %v; want it to expire the session: %v", swept, err, expired)
	}
}

// doPass sets the session's expiry back, as if its time had passed.
func (m *modelled) doPass(t *rapid.T) {
	if m.status != session.Pending || m.overdue {
		t.Skip("its time does not matter any more")
	}
	m.overdue = true
	tag := bucketTag(m.asks.MerchantID)
	err := m.redis.HSet(t.Context(), tag+"session:"+m.id.String(), "x", m.created).Err()
	score := goredis.Z{Score: 1, Member: m.id.String()}
	if err = errors.Join(err, m.redis.ZAdd(t.Context(), tag+"expiry", score).Err()); err != nil {
		t.Fatal(err)
	}
}

func (m *modelled) check(t *rapid.T) {
	tag := bucketTag(m.asks.MerchantID)
	status, err := m.redis.HGet(t.Context(), tag+"session:"+m.id.String(), "s").Result()
	if ended := err == nil; ended != m.status.Final() || (ended && status != string(m.status)) {
		t.Fatalf("Redis holds %q, want %s", status, m.status)
	}
	if m.status == session.Pending && !slices.Contains(pendingIn(t, m.redis, m.id.Bucket()), m.id.String()) {
		t.Fatal("pending, and no sweep will look at it")
	}
	events := eventsOf(t, m.redis, m.id)
	if got := kindsOf(events); !slices.Equal(got, m.events) {
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
		t.Fatalf("%s, and %d events tell of its end", m.status, ends)
	}
}
