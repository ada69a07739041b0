//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

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
		for _, one := range metricsOf(r.t, r.dispatchers[0].ops)["merchant_operator_refunds_owed"].GetMetric() {
			owed[one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
		}
		return fmt.Sprint(owed, ", and not ", len(r.owed)), owed["0h"] == float64(len(r.owed))
	})
	return fmt.Sprintf("%d refunds were forgotten and are owed, no other; %d were confirmed; %d payments came too late for a hold, and moved no money", len(r.owed), r.refunded, r.tooLate)
}
