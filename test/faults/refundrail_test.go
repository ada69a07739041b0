//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// refundRail is a rail that pays back what it reads that it owes, and does much that a rail should not. It remembers nothing between two looks at its
// list, as if it had been restarted with an empty disk: only its bank remembers.
type refundRail struct {
	*ledger

	t *testing.T
	// ask sends a request to the internal API until it is answered with 200 or one of these statuses. false: the test has failed.
	ask func(c caller, method, path, body string, also ...int) (fixture.Answer, bool)
	// lose sends a request once. Nobody reads the answer.
	lose func(c caller, method, path, body string)
	// price is how many cents were paid with a payment.
	price func(payment string) int
	// leaves reports whether the rail pays a refund back later than the test can wait for; nil: none.
	leaves func(owed owedRefund) bool
}

// ledger is what a rail's bank has paid back. It knows each refund by its name, so that a rail which has forgotten everything pays once. Only its rail
// uses it, until the audit.
type ledger struct {
	paid map[movement]int // cents
	back map[string]int   // the sum of each payment
	// unconfirmed are how many refunds of a payment were paid of which the rail does not know that they are confirmed.
	unconfirmed map[string]int
	unasked     map[string]bool
	rejected    map[movement]bool // the rejection was answered
	pages       int
}

// movement is a refund of a payment, "<session id> <reference>".
type movement struct{ payment, ref string }

func newLedger() *ledger {
	return &ledger{paid: map[movement]int{}, back: map[string]int{}, unconfirmed: map[string]int{}, unasked: map[string]bool{}, rejected: map[movement]bool{}}
}

func (l *ledger) pay(moved movement, cents int) {
	l.paid[moved] = cents
	l.back[moved.payment] += cents
}

// paidBack returns how many cents of a payment went back.
func (l *ledger) paidBack(payment string) (cents int) { return l.back[payment] }

// owedRefund is a line of the list of what a rail owes.
type owedRefund struct {
	SessionID   string `json:"sessionId"`
	PaymentRef  string `json:"paymentRef"`
	RefundRef   string `json:"refundRef"`
	AmountCents int    `json:"amountCents"`
	Cause       string `json:"cause"`
}

// requested reports whether the merchant asks for it. Otherwise the payment was refused.
func (o owedRefund) requested() bool { return o.Cause == "requested" }

func (o owedRefund) moved() movement { return movement{o.SessionID + " " + o.PaymentRef, o.RefundRef} }

// look is one look of the rail at what it owes, five refunds at a time.
func (r *refundRail) look(c caller) {
	for after := ""; ; {
		page, next, ok := r.readPage(c, after)
		if !ok {
			return
		}
		r.pages++
		for _, owed := range page {
			if r.leaves != nil && r.leaves(owed) {
				continue
			}
			dice := fnv.New32a()
			fmt.Fprint(dice, owed.RefundRef, r.pages)
			if !r.payBack(c, owed, dice.Sum32()%8) {
				return // and read again
			}
		}
		if after = next; after == "" {
			return
		}
	}
}

// payBack pays one refund back, or does what a rail should not. false: what was read of the list is not true any more, for something went back that
// was not open, or the test has failed.
func (r *refundRail) payBack(c caller, owed owedRefund, mood uint32) (goOn bool) {
	moved := owed.moved()
	paid, before := r.paid[moved]
	whole := !before && r.unconfirmed[moved.payment] == 0 // nothing is under way
	switch {
	case before && paid != owed.AmountCents:
		r.t.Errorf("%+v is owed, and %d was paid under its name", owed, paid)
		return false
	case !before && mood == 0 && owed.requested():
		return r.reject(c, owed)
	case !before && mood == 1 && owed.requested(): // rejects it, and then pays after all
		if !r.reject(c, owed) {
			return false
		}
	case mood == 2 && owed.requested() && whole && !r.unasked[moved.payment] && r.paidBack(moved.payment)+r.price(moved.payment)/4 <= r.price(moved.payment):
		if cents := r.price(moved.payment) / 4; cents > 0 {
			r.unasked[moved.payment] = true
			r.payOwn(c, owed, "unasked", cents)
			return false
		}
	case mood <= 1 && whole && owed.AmountCents > 1: // pays a refused payment in parts, under names of its own
		r.payOwn(c, owed, fmt.Sprintf("%s-%d", owed.PaymentRef, owed.AmountCents), owed.AmountCents/2)
		return false
	}
	if !before {
		r.pay(moved, owed.AmountCents)
		r.unconfirmed[moved.payment]++
	}
	if sum := r.paidBack(moved.payment); sum > r.price(moved.payment) {
		if !before { // say it once
			r.t.Errorf("%d went back of %s, with %+v", sum, moved.payment, owed)
		}
		return false
	}
	switch mood {
	case 3: // forgets that it has paid, and looks again
		return true
	case 4:
		r.lose(c, http.MethodPost, refundsOf(owed), confirmation(owed, owed.RefundRef, owed.AmountCents))
		return true
	}
	for range 1 + mood%2 {
		if !r.confirm(c, owed, owed.RefundRef, owed.AmountCents) {
			return false
		}
	}
	r.unconfirmed[moved.payment]--
	if mood == 5 && owed.requested() { // rejects what it has confirmed
		got, ok := r.ask(c, http.MethodPost, refundsOf(owed), rejection(owed), http.StatusConflict)
		if ok && got.Header.Get("Error-Code") != "refund_confirmed" {
			r.t.Errorf("a rejection of %+v, which is confirmed, gets %d %s", owed, got.Status, got.Raw)
		}
		return ok
	}
	return mood != 1
}

// payOwn pays cents of the payment of a refund under a name of the rail's own.
func (r *refundRail) payOwn(c caller, owed owedRefund, name string, cents int) {
	r.pay(movement{owed.moved().payment, name}, cents)
	r.confirm(c, owed, name, cents)
}

func (r *refundRail) reject(c caller, owed owedRefund) bool {
	_, ok := r.ask(c, http.MethodPost, refundsOf(owed), rejection(owed))
	if ok {
		r.rejected[owed.moved()] = true
	}
	return ok
}

func (r *refundRail) confirm(c caller, owed owedRefund, ref string, cents int) bool {
	_, ok := r.ask(c, http.MethodPost, refundsOf(owed), confirmation(owed, ref, cents))
	return ok
}

func refundsOf(owed owedRefund) (path string) {
	return "/internal/v1/sessions/" + owed.SessionID + "/refunds"
}

func confirmation(owed owedRefund, ref string, cents int) (body string) {
	return fmt.Sprintf(`{"paymentRef":%q,"refundRef":%q,"amountCents":%d}`, owed.PaymentRef, ref, cents)
}

func rejection(owed owedRefund) (body string) {
	return fmt.Sprintf(`{"paymentRef":%q,"refundRef":%q,"outcome":"REJECTED","reason":"closed"}`, owed.PaymentRef, owed.RefundRef)
}

// readPage reads a page of what the rail owes; after is empty for the first one, and next for the last one.
func (r *refundRail) readPage(c caller, after string) (page []owedRefund, next string, ok bool) {
	query := url.Values{"limit": {"5"}}
	if after != "" {
		query.Set("after", after)
	}
	got, ok := r.ask(c, http.MethodGet, "/internal/v1/refunds?"+query.Encode(), "")
	if !ok {
		return nil, "", false
	}
	var list struct {
		Refunds []owedRefund `json:"refunds"`
		Cursor  string       `json:"cursor"`
	}
	if err := json.Unmarshal(got.Raw, &list); err != nil {
		r.t.Errorf("%s: %v", got.Raw, err)
		return nil, "", false
	}
	return list.Refunds, list.Cursor, true
}

// list reads all that the rail owes.
func (r *refundRail) list() (all []owedRefund) {
	r.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	for after := ""; ; {
		page, next, ok := r.readPage(c, after)
		if !ok {
			return all
		}
		all = append(all, page...)
		if after = next; after == "" {
			return all
		}
	}
}

// auditRequests compares the requests for refunds of a payment, as its merchant reads them, with what was asked for, in cents by refund id, with what
// the bank has paid and with what the rail still owes. It returns the status of each.
func (r *refundRail) auditRequests(payment string, session fixture.Answer, asked map[string]int, owed map[movement]int) (statuses map[string]string) {
	r.t.Helper()
	statuses = map[string]string{}
	requests, _ := session.Body["refundRequests"].([]any)
	if len(requests) != len(asked) {
		r.t.Errorf("%s has the requests %v, and %v were acknowledged", payment, requests, asked)
	}
	open := 0
	for _, one := range requests {
		request, _ := one.(map[string]any)
		id, _ := request["refundId"].(string)
		status, _ := request["status"].(string)
		amount, _ := request["amountCents"].(float64)
		moved := movement{payment, id}
		want := map[string]struct{ paid, owed int }{"REQUESTED": {0, asked[id]}, "CONFIRMED": {asked[id], 0}, "REJECTED": {0, 0}}
		if end, known := want[status]; !known || int(amount) != asked[id] || r.paid[moved] != end.paid || owed[moved] != end.owed {
			r.t.Errorf("request %v of %s: %d was asked for, the bank has paid %d, and the rail owes %d", request, payment, asked[id], r.paid[moved], owed[moved])
		}
		statuses[id] = status
		open += owed[moved]
	}
	if sum := r.paidBack(payment) + open; sum > r.price(payment) {
		r.t.Errorf("%d went back of %s or are asked for, and %d were paid", sum, payment, r.price(payment))
	}
	return statuses
}

// auditRefunded compares what the bank has paid back of a payment with what its rail reads of the session.
func (r *refundRail) auditRefunded(payment, ref string, session fixture.Answer) {
	r.t.Helper()
	read := 0
	payments, _ := session.Body["payments"].([]any)
	for _, one := range payments {
		if p, _ := one.(map[string]any); p["own"] == true && p["paymentRef"] == ref {
			refunded, _ := p["refundedCents"].(float64)
			read += int(refunded)
		}
	}
	if paid := r.paidBack(payment); paid != read || paid > r.price(payment) {
		r.t.Errorf("of %s, which was of %d, the bank paid back %d, and its rail reads %d", payment, r.price(payment), paid, read)
	}
}
