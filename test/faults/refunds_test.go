//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func refundFaults() []fault {
	return []fault{
		{
			"P15", "rails that forget, repeat, reject and pay unasked: kill -9 of an API replica, of Redis, and of both",
			"what went back is what was asked and owed, cent by cent, and never more than a payment", tryRefunds,
		},
	}
}

// refunders are merchants who ask for refunds, and two rails that pay them back, while servers are killed.
type refunders struct {
	*payers

	back   [2]*refundRail // of the same tokens as rails
	asking sync.Mutex
	asked  map[string]map[string]int // cents by refund id, by session id: what was acknowledged
}

func tryRefunds(t *testing.T) (tried int, seen string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	r := &refunders{payers: &payers{deployment: deploy(t, 2, 0, durable...), ctx: ctx}, asked: map[string]map[string]int{}}
	r.Tenant.Merchant("coffee")
	r.key = r.apiKey("office", "coffee", mayDoAll)
	r.rails = []string{r.railToken(), shared.secret(fixture.NewTenant(t, shared.Client).RailToken())}
	for rail, token := range r.rails {
		r.settlesEverywhere(token)
		r.back[rail] = r.newRail(rail)
	}
	stop := callers(4, r.sell)
	defer stop()
	stopRails := callers(len(r.rails), func(c caller, rail, _ int) {
		r.back[rail].look(c)
		select { // a rail that owes nothing does not look all the time
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	})
	defer stopRails()
	defer giveUp() // before stop waits
	faults := []func(n int){r.killReplica, r.killRedis, r.killBoth}
	for n := range len(faults) * *intensity {
		r.awaitPaid(10)
		faults[n%len(faults)](n)
	}
	r.awaitPaid(10)
	stop()
	eventually(t, "no rail owes anything", func() bool { return len(r.back[0].list())+len(r.back[1].list()) == 0 })
	stopRails()
	return len(faults) * *intensity, r.audit()
}

// newRail is the rail of a token.
func (r *refunders) newRail(rail int) *refundRail {
	token := r.rails[rail]
	return &refundRail{
		ledger: newLedger(), t: r.t, price: func(string) int { return priceOfCode },
		ask: func(c caller, method, path, body string, also ...int) (fixture.Answer, bool) {
			return r.insist(c, rail, func(to *replica) (fixture.Answer, error) { return c.call(to.internal, method, path, token, body) }, also...)
		},
		lose: func(c caller, method, path, body string) {
			_, _ = c.call(r.replicas[rail].internal, method, path, token, body)
		},
	}
}

// sell has a session paid, at one rail or at two, and asks for refunds of it: more than fits.
func (r *refunders) sell(c caller, n, step int) {
	created, ok := r.insist(c, n, func(to *replica) (fixture.Answer, error) {
		return c.call(to.public, http.MethodPost, fixture.Sessions, r.key, fmt.Sprintf(`{"amountCents":%d}`, priceOfCode))
	})
	if !ok {
		return
	}
	code := scannedCode{id: created.Text("sessionId")}
	for rail := range 1 + step%2 {
		code.payments = append(code.payments, movedPayment{rail: rail, ref: "1", cents: priceOfCode})
		if !r.report(code.id, &code.payments[rail], n) {
			return
		}
	}
	asked := map[string]int{}
	for i, body := range []string{`{"amountCents":400,"reason":"cold"}`, `{"amountCents":500}`, `{"amountCents":600}`, `{}`}[step%3:] {
		var first string
		for range 2 {
			got, ok := r.insist(c, n+i, func(to *replica) (fixture.Answer, error) {
				return c.call(to.public, http.MethodPost, fixture.Sessions+"/"+code.id+"/refunds", r.key, body, "Idempotency-Key", fmt.Sprintf("refund-%d", i))
			}, http.StatusConflict)
			switch id := got.Text("refundId"); {
			case !ok:
				return
			case got.Status == http.StatusConflict && got.Header.Get("Error-Code") != "refund_exceeds_payment":
				r.t.Errorf("%s of %s gets %s", body, code.id, got.Raw)
			case got.Status == http.StatusConflict && first != "":
				r.t.Errorf("%s of %s was accepted as %s, and then refused", body, code.id, first)
			case got.Status == http.StatusConflict:
			case first != "" && id != first:
				r.t.Errorf("one Idempotency-Key of %s is %s and %s", code.id, first, id)
			default:
				first, asked[id] = id, cents(got)
			}
		}
	}
	r.asking.Lock()
	r.asked[code.id] = asked
	r.asking.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes = append(r.codes, code)
}

func cents(got fixture.Answer) int {
	amount, _ := got.Body["amountCents"].(float64)
	return int(amount)
}

// audit compares what merchants read with the books of the banks.
func (r *refunders) audit() (seen string) {
	r.t.Helper()
	counts, back := map[string]int{}, 0
	for _, code := range r.codes {
		got := r.mustCall(http.StatusOK, r.replicas[0].public, http.MethodGet, fixture.Sessions+"/"+code.id, r.key, "")
		for _, status := range r.back[0].auditRequests(code.id+" 1", got, r.asked[code.id], nil) {
			counts[status]++
		}
		for _, moved := range code.payments {
			payment, rail := code.id+" "+moved.ref, r.back[moved.rail]
			session := r.mustCall(http.StatusOK, r.replicas[1].internal, http.MethodGet, "/internal/v1/sessions/"+code.id, r.rails[moved.rail], "")
			rail.auditRefunded(payment, moved.ref, session)
			if paid := rail.paidBack(payment); !moved.applied && paid != moved.cents {
				r.t.Errorf("payment %+v of %s was refused, and the bank paid back %d", moved, code.id, paid)
			}
			back += rail.paidBack(payment)
		}
	}
	unasked := len(r.back[0].unasked) + len(r.back[1].unasked)
	if counts["CONFIRMED"] == 0 || counts["REJECTED"] == 0 || unasked == 0 {
		r.t.Errorf("requests ended so: %v, %d refunds were unasked: the test has not met all", counts, unasked)
	}
	return fmt.Sprintf("%d sessions, requests %v, %d refunds unasked: %d cents went back, as all books say; %d requests without an answer",
		len(r.codes), counts, unasked, back, r.unanswered.Load())
}
