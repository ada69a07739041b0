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
	const promised = "one payment completes the session, each other is to be refunded; the rails hear so each time they report it or read the session"
	return []fault{
		{"P14", "two payers, one code: kill -9 of an API replica, of Redis, and of both", promised, tryTwoPayers},
	}
}

// payers race for the same sessions, at two rails or at one, until all of them have an answer.
type payers struct {
	*deployment

	ctx   context.Context // ends the race when the test fails
	key   string
	rails []string // their tokens

	unanswered atomic.Int64
	mu         sync.Mutex
	codes      []scannedCode
}

// scannedCode is a session that two payers have paid.
type scannedCode struct {
	id       string
	payments []movedPayment
}

// movedPayment is money that a rail has moved.
type movedPayment struct {
	rail    int
	ref     string
	cents   int
	applied bool
}

const priceOfCode = 1250

func tryTwoPayers(t *testing.T) (tried int, seen string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	p := &payers{deployment: deploy(t, 2, 0, durable...), ctx: ctx}
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

// scan creates a session, and has two payers pay it at once. Rails do not agree on references.
func (p *payers) scan(c caller, n, step int) {
	created, ok := p.insist(c, n, func(r *replica) (fixture.Answer, error) {
		return c.call(r.public, http.MethodPost, fixture.Sessions, p.key, fmt.Sprintf(`{"amountCents":%d}`, priceOfCode))
	})
	if !ok {
		return
	}
	code := scannedCode{id: created.Text("sessionId")}
	switch step % 4 {
	case 0: // two payments by one rail
		code.payments = []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 0, ref: "2", cents: priceOfCode}}
	case 1: // two rails with equal references
		code.payments = []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "1", cents: priceOfCode}}
	case 2: // another amount
		code.payments = []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "2", cents: priceOfCode + 1}}
	default: // three, one of them with another amount under a reference that the other rail uses, too
		code.payments = []movedPayment{{rail: 0, ref: "1", cents: priceOfCode}, {rail: 1, ref: "1", cents: priceOfCode - 1}, {rail: 1, ref: "2", cents: priceOfCode}}
	}
	answered := make([]bool, len(code.payments))
	var phones sync.WaitGroup
	for i := range code.payments {
		phones.Go(func() { answered[i] = p.report(code.id, &code.payments[i], n+i) })
	}
	phones.Wait()
	if slices.Contains(answered, false) {
		return // the test has failed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes = append(p.codes, code)
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

// insist calls one replica after the other until one answers. false: the test has failed.
func (p *payers) insist(c caller, n int, call func(*replica) (fixture.Answer, error)) (fixture.Answer, bool) {
	for ; ; n++ {
		got, err := call(p.replicas[n%len(p.replicas)])
		if err == nil && !unavailable(got) {
			if got.Status != http.StatusOK && got.Status != http.StatusCreated {
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
		if applied != 1 {
			p.t.Errorf("%s has %d payments that completed it: %+v", code.id, applied, code.payments)
		}
	}
	return fmt.Sprintf("%d codes, %d payments: each code paid once, %d payments to be refunded, read so by both rails; %d requests without an answer", len(p.codes), moved, owed, p.unanswered.Load())
}
