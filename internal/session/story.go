package session

// Story is a session with what rails have reported of it, and its merchant has asked of them.
type Story struct {
	Session Session
	// Refunds are the refunds of the payment that completed the session.
	Refunds []Refund
	// Requests are what the merchant has asked for of that payment, in the order of RequestedAt.
	Requests []RefundRequest
	// Refused are the payments that it did not take, in the order of PaidAt.
	Refused []RefusedPayment
	// Failed are the payments that failed while another one held it.
	Failed []Payment
}

// AskedCents is how much of the payment that completed the session is asked for, and not confirmed or rejected.
func (s *Story) AskedCents() (cents int64) {
	for _, request := range s.Requests {
		if request.Status == RefundRequested {
			cents += request.AmountCents
		}
	}
	return cents
}

// RefundableCents is how much of that payment a RefundRequest may still ask for.
func (s *Story) RefundableCents() int64 {
	if s.Session.Status != Completed {
		return 0
	}
	return s.Session.Charge.AmountCents - SumRefunds(s.Refunds) - s.AskedCents()
}

// RefusedPayment is money that has moved and that its session does not take.
type RefusedPayment struct {
	Payment

	// Decision says why: Late, Mismatched or MerchantDeleted.
	Decision Decision
	// Refunds are in the order in which they were recorded.
	Refunds []Refund
}
