//go:build faults

package faults

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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

// settlesEverywhere waits until each replica has heard that the rail may settle.
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

// rage lets the callers go on while the fault is tried this many times, and returns when all are done.
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
	operation.Input, operation.Output = call, answerOf(got)
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

func answerOf(got fixture.Answer) orderAnswer {
	replayed, _ := got.Body["idempotent"].(bool)
	applied, _ := got.Body["applied"].(bool)
	return orderAnswer{
		code: got.Status, id: got.Text("sessionId"), status: session.Status(got.Text("status")),
		replayed: replayed, applied: applied, refund: got.Text("action") == "REFUND_REQUIRED",
	}
}
