//go:build faults

package faults

import (
	"fmt"
	"net/http"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// What is done about an order, which is one Idempotency-Key.
type orderCall struct {
	operation string // create, read, cancel or settle
	payment   int    // of settle: its number
	maybe     bool   // there was no answer that said what came of it
}

// orderAnswer is what the caller was told.
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
