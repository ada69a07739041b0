package session_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

var statuses = []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}

func TestCancel(t *testing.T) {
	for status, want := range map[session.Status]session.Decision{
		session.Pending:   session.Applied,
		session.Cancelled: session.Repeated,
		session.Completed: session.Conflict,
		session.Failed:    session.Conflict,
		session.Expired:   session.Conflict,
	} {
		if got := session.Cancel(status, false); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
		if status == session.Pending {
			want = session.InProgress
		}
		if got := session.Cancel(status, true); got != want {
			t.Errorf("%s, held: %s, want %s", status, got, want)
		}
	}
}

// Every case there is: a reference that was used is refused as such, then an end, then the hold of another payment.
func TestHold(t *testing.T) {
	for _, status := range statuses {
		for holder, pending := range map[session.Holder][2]session.Decision{
			session.HeldByNobody: {session.Applied, session.Ignored},
			session.HeldBySelf:   {session.Applied, session.Applied},
			session.HeldByOther:  {session.InProgress, session.InProgress},
		} {
			hold, release := pending[0], pending[1]
			if status != session.Pending {
				hold = session.Conflict
			}
			if status != session.Pending && holder == session.HeldByOther {
				release = session.Ignored
			}
			if got := session.Hold(status, holder, false); got != hold {
				t.Errorf("%s, held by %s: %s, want %s", status, holder, got, hold)
			}
			if got := session.Hold(status, holder, true); got != session.ReferenceUsed {
				t.Errorf("%s, held by %s, used: %s", status, holder, got)
			}
			if got := session.Release(status, holder); got != release {
				t.Errorf("%s, held by %s: %s is the release, want %s", status, holder, got, release)
			}
		}
	}
}

// Every case there is: of each status, what a payment of the same amount comes to, and one of another.
func TestSettle(t *testing.T) {
	type decisions struct{ same, other session.Decision }
	late := decisions{session.Late, session.Late}
	ignored := decisions{session.Ignored, session.Ignored}
	conflict := decisions{session.Conflict, session.Conflict}
	recorded := decisions{session.Ignored, session.Conflict}
	for _, test := range []struct {
		known   session.PaymentState
		outcome session.Status
		want    map[session.Status]decisions
	}{
		{session.PaymentUnknown, session.Completed, map[session.Status]decisions{
			session.Pending:   {session.Applied, session.Mismatched},
			session.Completed: late, session.Failed: late, session.Expired: late, session.Cancelled: late,
		}},
		{session.PaymentUnknown, session.Failed, map[session.Status]decisions{
			session.Pending:   {session.Applied, session.Ignored},
			session.Completed: ignored, session.Failed: ignored, session.Expired: ignored, session.Cancelled: ignored,
		}},
		{session.PaymentExcluded, session.Completed, map[session.Status]decisions{
			session.Pending:   {session.Applied, session.Mismatched},
			session.Completed: late, session.Failed: late, session.Expired: late, session.Cancelled: late,
		}},
		{session.PaymentExcluded, session.Failed, map[session.Status]decisions{
			session.Pending:   {session.Recorded, session.Ignored},
			session.Completed: ignored, session.Failed: ignored, session.Expired: ignored, session.Cancelled: ignored,
		}},
		{session.PaymentFailed, session.Completed, map[session.Status]decisions{
			session.Pending:   {session.Applied, session.Mismatched},
			session.Completed: late, session.Failed: late, session.Expired: late, session.Cancelled: late,
		}},
		{session.PaymentFailed, session.Failed, map[session.Status]decisions{
			session.Pending: recorded, session.Completed: recorded, session.Failed: recorded, session.Expired: recorded, session.Cancelled: recorded,
		}},
		// Only a session that was completed or failed can have been settled; the rest is data that is never written.
		{session.PaymentSettled, session.Completed, map[session.Status]decisions{
			session.Completed: {session.Repeated, session.Conflict},
			session.Failed:    late,
			session.Pending:   conflict, session.Expired: conflict, session.Cancelled: conflict,
		}},
		{session.PaymentSettled, session.Failed, map[session.Status]decisions{
			session.Completed: conflict,
			session.Failed:    {session.Repeated, session.Conflict},
			session.Pending:   conflict, session.Expired: conflict, session.Cancelled: conflict,
		}},
	} {
		for _, status := range statuses {
			for _, same := range []bool{true, false} {
				want := test.want[status].same
				if !same {
					want = test.want[status].other
				}
				if got := session.Settle(status, test.outcome, test.known, same); got != want {
					t.Errorf("%s, %s payment, %s, same amount %v: %s, want %s", status, test.outcome, test.known, same, got, want)
				}
			}
		}
	}
}

// What was refused stays refused, whatever became of the session meanwhile.
func TestSettle_RefusedPaymentAgain(t *testing.T) {
	for _, status := range statuses {
		for _, test := range []struct {
			outcome session.Status
			same    bool
			want    session.Decision
		}{
			{session.Completed, true, session.RefundedAgain},
			{session.Completed, false, session.Conflict},
			{session.Failed, true, session.Conflict},
			{session.Failed, false, session.Conflict},
		} {
			if got := session.Settle(status, test.outcome, session.PaymentRefused, test.same); got != test.want {
				t.Errorf("%s, %s payment, same amount %v: %s, want %s", status, test.outcome, test.same, got, test.want)
			}
		}
	}
}

// Of a merchant that was deleted new money is refunded, whatever the session is. All else is as usual: repeats get the first answer.
func TestSettleDeleted(t *testing.T) {
	for _, outcome := range []session.Status{session.Completed, session.Failed} {
		for _, known := range []session.PaymentState{session.PaymentUnknown, session.PaymentSettled, session.PaymentRefused} {
			for _, status := range statuses {
				for _, same := range []bool{true, false} {
					want := session.Settle(status, outcome, known, same)
					afterAFailure := known == session.PaymentSettled && status == session.Failed
					if outcome == session.Completed && (known == session.PaymentUnknown || afterAFailure) {
						want = session.MerchantDeleted
					}
					if got := session.SettleDeleted(status, outcome, known, same); got != want {
						t.Errorf("%s, %s payment, %s, same amount %v: %s, want %s", status, outcome, known, same, got, want)
					}
				}
			}
		}
	}
}

func TestDecision_Meaning(t *testing.T) {
	for decision, want := range map[session.Decision]struct{ ended, refund bool }{
		session.Applied:         {true, false},
		session.Repeated:        {true, false},
		session.Ignored:         {false, false},
		session.Late:            {false, true},
		session.Mismatched:      {false, true},
		session.MerchantDeleted: {false, true},
		session.RefundedAgain:   {false, true},
		session.Conflict:        {false, false},
	} {
		if decision.Ended() != want.ended || decision.RefundRequired() != want.refund {
			t.Errorf("%s: ended %v, refund %v; want %+v", decision, decision.Ended(), decision.RefundRequired(), want)
		}
	}
}
