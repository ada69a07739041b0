package session_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

var statuses = []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}

func TestCancel(t *testing.T) {
	for status, want := range map[session.Status]session.Verdict{
		session.Pending:   session.Applied,
		session.Cancelled: session.Repeated,
		session.Completed: session.Contradicted,
		session.Failed:    session.Contradicted,
		session.Expired:   session.Contradicted,
	} {
		if got := session.Cancel(status); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}

// Every case there is: of each status, what a payment of the same amount comes to, and one of another.
func TestSettle(t *testing.T) {
	type verdicts struct{ same, other session.Verdict }
	late := verdicts{session.Late, session.Late}
	ignored := verdicts{session.Ignored, session.Ignored}
	contradicted := verdicts{session.Contradicted, session.Contradicted}
	for _, test := range []struct {
		known   session.Standing
		outcome session.Status
		want    map[session.Status]verdicts
	}{
		{session.Unheard, session.Completed, map[session.Status]verdicts{
			session.Pending:   {session.Applied, session.Mismatched},
			session.Completed: late, session.Failed: late, session.Expired: late, session.Cancelled: late,
		}},
		{session.Unheard, session.Failed, map[session.Status]verdicts{
			session.Pending:   {session.Applied, session.Ignored},
			session.Completed: ignored, session.Failed: ignored, session.Expired: ignored, session.Cancelled: ignored,
		}},
		// Only a session that was completed or failed can have been settled; the rest is data nobody would write.
		{session.Settled, session.Completed, map[session.Status]verdicts{
			session.Completed: {session.Repeated, session.Contradicted},
			session.Failed:    late,
			session.Pending:   contradicted, session.Expired: contradicted, session.Cancelled: contradicted,
		}},
		{session.Settled, session.Failed, map[session.Status]verdicts{
			session.Completed: contradicted,
			session.Failed:    {session.Repeated, session.Contradicted},
			session.Pending:   contradicted, session.Expired: contradicted, session.Cancelled: contradicted,
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
func TestSettleAgainWithARefusedPayment(t *testing.T) {
	for _, status := range statuses {
		for _, test := range []struct {
			outcome session.Status
			same    bool
			want    session.Verdict
		}{
			{session.Completed, true, session.RefundedAgain},
			{session.Completed, false, session.Contradicted},
			{session.Failed, true, session.Contradicted},
			{session.Failed, false, session.Contradicted},
		} {
			if got := session.Settle(status, test.outcome, session.Refused, test.same); got != test.want {
				t.Errorf("%s, %s payment, same amount %v: %s, want %s", status, test.outcome, test.same, got, test.want)
			}
		}
	}
}

func TestWhatAVerdictMeans(t *testing.T) {
	for verdict, want := range map[session.Verdict]struct{ ended, refund bool }{
		session.Applied:       {true, false},
		session.Repeated:      {true, false},
		session.Ignored:       {false, false},
		session.Late:          {false, true},
		session.Mismatched:    {false, true},
		session.RefundedAgain: {false, true},
		session.Contradicted:  {false, false},
	} {
		if verdict.Ended() != want.ended || verdict.RefundRequired() != want.refund {
			t.Errorf("%s: ended %v, refund %v; want %+v", verdict, verdict.Ended(), verdict.RefundRequired(), want)
		}
	}
}
