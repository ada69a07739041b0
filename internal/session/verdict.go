package session

// Verdict is what becomes of a change somebody wants. All rules on how a session ends are in Cancel and
// Settle; that a session past its time has expired is seen to before they are asked.
type Verdict string

const (
	// Applied says that the session ends with the wanted status.
	Applied Verdict = "applied"
	// Repeated says that it has ended so before, by the same wish. Nothing changes, and the answer is that
	// of then.
	Repeated Verdict = "repeated"
	// Ignored says that the wish comes too late or does not fit, and that no money has moved. Nothing changes.
	Ignored Verdict = "ignored"
	// Late says that money has moved after the end. It is recorded and to be refunded; the status stays.
	Late Verdict = "late"
	// Mismatched says that money has moved that is not the session's amount. It is recorded and to be
	// refunded; the session stays pending.
	Mismatched Verdict = "mismatched"
	// RefundedAgain says that the same money has been refused before. Nothing changes, and the answer is
	// that of then.
	RefundedAgain Verdict = "refunded_again"
	// Contradicted says that the wish contradicts what is already so. Nothing changes.
	Contradicted Verdict = "contradicted"
)

// Ended reports whether the session has ended as was wanted, now or before.
func (v Verdict) Ended() bool { return v == Applied || v == Repeated }

// RefundRequired reports whether money has moved that the session does not take.
func (v Verdict) RefundRequired() bool { return v == Late || v == Mismatched || v == RefundedAgain }

// Standing is what a session knows of a payment reference.
type Standing string

const (
	// Unheard is a reference the session knows nothing of.
	Unheard Standing = "unheard"
	// Settled is the one that settled the session.
	Settled Standing = "settled"
	// Refused is one whose money was recorded as late or mismatching.
	Refused Standing = "refused"
)

// Cancel decides about a wish to cancel a session of this status.
func Cancel(status Status) Verdict {
	switch status {
	case Pending:
		return Applied
	case Cancelled:
		return Repeated
	default:
		return Contradicted
	}
}

// Settle decides about a payment that had the outcome, Completed or Failed, for a session of this status.
// sameAmount compares the payment with the session or, when the reference was Refused, with what was
// recorded of it then.
func Settle(status, outcome Status, known Standing, sameAmount bool) Verdict {
	paid := outcome == Completed
	switch {
	case known == Refused && paid && sameAmount:
		return RefundedAgain
	case known == Refused:
		return Contradicted
	case known == Settled && status == outcome && sameAmount:
		return Repeated
	case known == Settled && status == Failed && paid:
		return Late // whatever its amount: the failure that ended the session had moved none
	case known == Settled:
		return Contradicted
	case status.Final() && paid:
		return Late
	case status.Final():
		return Ignored
	case sameAmount:
		return Applied
	case paid:
		return Mismatched
	default:
		return Ignored
	}
}
