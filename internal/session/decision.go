package session

// Decision is what becomes of a request to end a session, or to hold it. All rules on how a session ends are in Cancel and Settle, and on who
// may hold it until then in Hold and Release; for how long, and for which merchants, hold.lua of package store adds, which has the times. A session
// past its expiry is expired before they are asked.
type Decision string

const (
	// Applied says that the session ends with the requested status.
	Applied Decision = "applied"
	// Repeated says that the same request ended it before. Nothing changes, and the answer is that of then.
	Repeated Decision = "repeated"
	// Ignored says that the request comes too late or does not fit, and that no money has moved. Nothing changes.
	Ignored Decision = "ignored"
	// Late says that money has moved after the end. It is recorded and to be refunded; the status stays.
	Late Decision = "late"
	// Mismatched says that money has moved that is not the session's amount, or of another currency. It is recorded and to be
	// refunded; the session stays pending.
	Mismatched Decision = "mismatched"
	// MerchantDeleted says that money has moved for a merchant that was deleted, without an event. It is recorded and to be
	// refunded; the status stays.
	MerchantDeleted Decision = "merchant_deleted"
	// RefundedAgain says that the same payment has been refused before. Nothing changes, and the answer is
	// that of then.
	RefundedAgain Decision = "refunded_again"
	// Recorded says that a payment failed while another one holds the session. It is recorded; the session stays pending.
	Recorded Decision = "recorded"
	// InProgress says that another payment holds the session. Nothing changes.
	InProgress Decision = "in_progress"
	// ReferenceUsed says that a payment was reported before, so it holds no session any more. Nothing changes.
	ReferenceUsed Decision = "reference_used"
	// Conflict says that the request contradicts what is already so. Nothing changes.
	Conflict Decision = "conflict"
)

// Ended reports whether the session has ended as requested, now or before.
func (d Decision) Ended() bool { return d == Applied || d == Repeated }

// RefundRequired reports whether money has moved that the session does not take.
func (d Decision) RefundRequired() bool {
	return d == Late || d == Mismatched || d == MerchantDeleted || d == RefundedAgain
}

// PaymentState is what a session knows of a payment reference.
type PaymentState string

const (
	// PaymentUnknown is a reference that was not reported before.
	PaymentUnknown PaymentState = "unknown"
	// PaymentSettled is the one that settled the session.
	PaymentSettled PaymentState = "settled"
	// PaymentRefused is one whose money was recorded as to be refunded.
	PaymentRefused PaymentState = "refused"
	// PaymentExcluded is one that was not reported before, while another one holds the session; or, once the session keeps no more failures of its
	// rail, any payment that does not hold it: it may be one of these.
	PaymentExcluded PaymentState = "excluded"
	// PaymentFailed is one whose failure was recorded while another one held the session.
	PaymentFailed PaymentState = "failed"
)

// Holder says who holds a session, as seen by a payment. Somebody else sees HeldByNobody or HeldByOther.
type Holder string

// A session is held by no payment, by the payment in question, or by another one.
const (
	HeldByNobody Holder = "nobody"
	HeldBySelf   Holder = "self"
	HeldByOther  Holder = "other"
)

// Cancel decides about a request to cancel a session of this status, held by a payment or not.
func Cancel(status Status, held bool) Decision {
	switch {
	case status == Pending && held:
		return InProgress
	case status == Pending:
		return Applied
	case status == Cancelled:
		return Repeated
	default:
		return Conflict
	}
}

// Hold decides whether a payment may hold a session of this status, or go on to. used: its reference was reported before.
func Hold(status Status, holder Holder, used bool) Decision {
	switch {
	case used:
		return ReferenceUsed
	case status.Final():
		return Conflict
	case holder == HeldByOther:
		return InProgress
	default:
		return Applied
	}
}

// Release decides whether a payment may end the hold of a session. To end none is no error.
func Release(status Status, holder Holder) Decision {
	switch {
	case status == Pending && holder == HeldByOther:
		return InProgress
	case holder == HeldBySelf:
		return Applied
	default:
		return Ignored
	}
}

// Settle decides about a payment that had the outcome, Completed or Failed, for a session of this status.
// sameAmount compares amount and currency of the payment with the session or, when the reference was refused, with what was
// recorded of it then. Money that has moved is taken, whatever payment holds the session.
func Settle(status, outcome Status, payment PaymentState, sameAmount bool) Decision {
	paid := outcome == Completed
	switch {
	case payment == PaymentFailed && !paid && sameAmount:
		return Ignored // as when it was recorded
	case payment == PaymentFailed && !paid:
		return Conflict
	case payment == PaymentExcluded && !paid && status == Pending && sameAmount:
		return Recorded
	case payment == PaymentRefused && paid && sameAmount:
		return RefundedAgain
	case payment == PaymentRefused:
		return Conflict
	case payment == PaymentSettled && status == outcome && sameAmount:
		return Repeated
	case payment == PaymentSettled && status == Failed && paid:
		return Late // whatever its amount: the failure that ended the session had moved none
	case payment == PaymentSettled:
		return Conflict
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

// SettleDeleted is Settle for a session whose merchant was deleted: money that was not reported before is refunded. What was answered
// before stays, and a payment that moved no money ends the session as usual.
func SettleDeleted(status, outcome Status, payment PaymentState, sameAmount bool) Decision {
	decision := Settle(status, outcome, payment, sameAmount)
	if outcome == Completed && (decision == Applied || decision == Late || decision == Mismatched) {
		return MerchantDeleted
	}
	return decision
}
