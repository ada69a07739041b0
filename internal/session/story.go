package session

// Story is a session with what rails have reported of it: refused payments, and refunds.
type Story struct {
	Session Session
	// Refunds are the refunds of the payment that completed the session.
	Refunds []Refund
	// Refused are the payments that it did not take, in the order of PaidAt.
	Refused []RefusedPayment
	// Failed are the payments that failed while another one held it.
	Failed []Payment
}

// RefusedPayment is money that has moved and that its session does not take.
type RefusedPayment struct {
	Payment

	// Decision says why: Late, Mismatched or MerchantDeleted.
	Decision Decision
	// Refunds are in the order in which they were recorded.
	Refunds []Refund
}
