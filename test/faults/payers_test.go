//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func payerFaults() []fault {
	const (
		kills    = ": kill -9 of an API replica, of Redis, and of both"
		promised = "one payment completes the session, each other is REFUND_REQUIRED, whenever its rail reports it or reads the session"
		held     = "one payment of each code moves money and completes the session; there is nothing to refund"
	)
	return []fault{
		{"P14", "two payers, one code" + kills, promised, tryTwoPayers(false)},
		{"P14", "two payers, one code, rails hold it before they charge" + kills, held, tryTwoPayers(true)},
	}
}

// payers race for the same sessions, at two rails or at one, until all of them have an answer.
type payers struct {
	*deployment

	ctx   context.Context // ends the race when the test fails
	key   string
	rails []string // their tokens
	hold  bool     // rails hold a session before money moves

	unanswered atomic.Int64
	mu         sync.Mutex
	codes      []scannedCode
}

// scannedCode is a session that two payers want to pay.
type scannedCode struct {
	id       string
	payments []movedPayment // whose money has moved
}

// movedPayment is money that a rail has moved.
type movedPayment struct {
	rail    int
	ref     string
	cents   int
	applied bool
}

const priceOfCode = 1250

func tryTwoPayers(hold bool) func(t *testing.T) (tried int, seen string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		return tryPayers(t, hold)
	}
}

func tryPayers(t *testing.T, hold bool) (tried int, seen string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	p := &payers{deployment: deploy(t, 2, 0, durable...), ctx: ctx, hold: hold}
	p.Tenant.Merchant("coffee")
	p.key = p.apiKey("till", "coffee")
	p.rails = []string{p.railToken(), shared.secret(fixture.NewTenant(t, shared.Client).RailToken())}
	for _, rail := range p.rails {
		p.settlesEverywhere(rail)
	}
	stop := callers(4, p.scan)
	defer stop()
	defer giveUp() // before stop waits
	faults := []func(n int){p.killReplica, p.killRedis, p.killBoth}
	for n := range len(faults) * *intensity {
		p.awaitPaid(10)
		faults[n%len(faults)](n)
	}
	p.awaitPaid(10)
	stop()
	return len(faults) * *intensity, p.audit()
}

func (p *payers) paid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.codes)
}

// awaitPaid waits until this many more codes are paid.
func (p *payers) awaitPaid(more int) {
	p.t.Helper()
	enough := p.paid() + more
	eventually(p.t, "codes are paid", func() bool { return p.paid() >= enough })
}

// awaitUnanswered waits until this many more requests have had no answer.
func (p *payers) awaitUnanswered(more int64) {
	p.t.Helper()
	enough := p.unanswered.Load() + more
	eventually(p.t, "requests have no answer", func() bool { return p.unanswered.Load() >= enough })
}

func (p *payers) killReplica(n int) {
	victim := p.replicas[n%len(p.replicas)]
	victim.kill()
	p.awaitPaid(5) // by the other one
	victim.restart(p.t)
}

func (p *payers) killRedis(int) {
	p.redis.Kill()
	p.awaitUnanswered(10)
	p.redis.Start()
}

func (p *payers) killBoth(n int) {
	victim := p.replicas[n%len(p.replicas)]
	p.redis.Kill()
	victim.kill()
	p.awaitUnanswered(10)
	p.redis.Start()
	victim.restart(p.t)
}

// scan creates a session, and has two payers pay it at once.
func (p *payers) scan(c caller, n, step int) {
	created, ok := p.insist(c, n, func(r *replica) (fixture.Answer, error) {
		return c.call(r.public, http.MethodPost, fixture.Sessions, p.key, fmt.Sprintf(`{"amountCents":%d}`, priceOfCode))
	})
	if !ok {
		return
	}
	code, planned := scannedCode{id: created.Text("sessionId")}, p.payments(step)
	answered, moved := make([]bool, len(planned)), make([]bool, len(planned))
	var phones sync.WaitGroup
	for i := range planned {
		phones.Go(func() {
			if p.hold {
				// Of three payers the first one does not like the price, and lets others pay.
				if moved[i], answered[i] = p.holds(code.id, planned[i], len(planned) == 3 && i == 0, n+i); !moved[i] {
					return
				}
			}
			moved[i], answered[i] = true, p.report(code.id, &planned[i], n+i)
		})
	}
	phones.Wait()
	if slices.Contains(answered, false) {
		return // the test has failed
	}
	for i, m := range planned {
		if moved[i] {
			code.payments = append(code.payments, m)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes = append(p.codes, code)
}

// payments are what the payers of a code want to pay. Rails do not agree on references. One that holds a session has read its amount.
func (p *payers) payments(step int) []movedPayment {
	other := 0
	if !p.hold {
		other = 1
	}
	switch step % 4 {
	case 0: // two payments by one rail
		return []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 0, ref: "2", cents: priceOfCode}}
	case 1: // two rails with equal references
		return []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "1", cents: priceOfCode}}
	case 2: // another amount
		return []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "2", cents: priceOfCode + other}}
	default: // three, one of them with another amount under a reference that the other rail uses, too
		return []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "1", cents: priceOfCode - other}, {rail: 1, ref: "2", cents: priceOfCode}}
	}
}

// holds has a payment hold a session as soon as no other one does, and reports whether its money may move then. A payer who leaves has it released.
func (p *payers) holds(id string, payment movedPayment, leaves bool, n int) (held, answered bool) {
	c := newCaller()
	defer c.http.CloseIdleConnections()
	hold := func(seconds int) (fixture.Answer, bool) {
		return p.insist(c, n, func(r *replica) (fixture.Answer, error) {
			return c.call(r.internal, http.MethodPost, "/internal/v1/sessions/"+id+"/hold", p.rails[payment.rail], fmt.Sprintf(`{"paymentRef":"%s","seconds":%d}`, payment.ref, seconds))
		}, http.StatusConflict)
	}
	for {
		got, ok := hold(120)
		switch code := got.Header.Get("Error-Code"); {
		case !ok:
			return false, false
		case got.Status == http.StatusOK && leaves:
			_, ok := hold(0)
			return false, ok
		case got.Status == http.StatusOK:
			return true, true
		case code == "session_ended":
			return false, true
		case code != "held":
			p.t.Errorf("the hold of %+v gets %d: %s", payment, got.Status, got.Raw)
			return false, false
		}
		select {
		case <-p.ctx.Done():
			return false, false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// report reports a payment until there is an answer, and once more.
func (p *payers) report(id string, moved *movedPayment, n int) bool {
	c := newCaller()
	defer c.http.CloseIdleConnections()
	body := fmt.Sprintf(`{"paymentRef":"%s","outcome":"COMPLETED","amountCents":%d}`, moved.ref, moved.cents)
	for again := range 2 {
		got, ok := p.insist(c, n+again, func(r *replica) (fixture.Answer, error) {
			return c.call(r.internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", p.rails[moved.rail], body)
		})
		if !ok {
			return false
		}
		applied := got.Body["applied"] == true
		if applied == (got.Text("action") == "REFUND_REQUIRED") {
			p.t.Errorf("payment %+v of %s is neither applied nor to be refunded: %s", *moved, id, got.Raw)
		}
		if again == 1 && applied != moved.applied {
			p.t.Errorf("payment %+v of %s: the answer to the repeated report is %s", *moved, id, got.Raw)
		}
		moved.applied = applied
	}
	return true
}

// insist calls one replica after the other until one answers with 200, 201 or one of these. false: the test has failed.
func (p *payers) insist(c caller, n int, call func(*replica) (fixture.Answer, error), also ...int) (fixture.Answer, bool) {
	for ; ; n++ {
		got, err := call(p.replicas[n%len(p.replicas)])
		if err == nil && !unavailable(got) {
			if got.Status != http.StatusOK && got.Status != http.StatusCreated && !slices.Contains(also, got.Status) {
				p.t.Errorf("a request gets %d: %s", got.Status, got.Raw)
				return got, false
			}
			return got, true
		}
		p.unanswered.Add(1)
		select {
		case <-p.ctx.Done():
			return got, false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// audit compares the books of the rails with what each of them reads.
func (p *payers) audit() (seen string) {
	p.t.Helper()
	moved, owed := 0, 0
	for _, code := range p.codes {
		applied := 0
		for rail, token := range p.rails {
			var want []string
			for _, m := range code.payments {
				action := "REFUND_REQUIRED"
				if m.applied {
					action = ""
				}
				want = append(want, fmt.Sprintf("own=%t ref=%s cents=%d action=%s", m.rail == rail, m.ref, m.cents, action))
			}
			read := p.mustCall(http.StatusOK, p.replicas[rail].internal, http.MethodGet, "/internal/v1/sessions/"+code.id, token, "")
			var got []string
			payments, _ := read.Body["payments"].([]any)
			for _, one := range payments {
				m, _ := one.(map[string]any)
				action, _ := m["action"].(string)
				got = append(got, fmt.Sprintf("own=%v ref=%v cents=%v action=%s", m["own"], m["paymentRef"], m["amountCents"], action))
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) || read.Text("status") != "COMPLETED" {
				p.t.Errorf("rail %d reads %s of %s:\n%q, want\n%q", rail, read.Text("status"), code.id, got, want)
			}
		}
		for _, m := range code.payments {
			moved++
			if !m.applied {
				owed++
				continue
			}
			applied++
			if m.cents != priceOfCode {
				p.t.Errorf("%+v has paid %s", m, code.id)
			}
		}
		if applied != 1 || p.hold && len(code.payments) != 1 {
			p.t.Errorf("%s has %d payments that completed it: %+v", code.id, applied, code.payments)
		}
	}
	return fmt.Sprintf("%d codes, %d payments: each code paid once, %d refunds owed, read so by both rails; %d requests without an answer", len(p.codes), moved, owed, p.unanswered.Load())
}
