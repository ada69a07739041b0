package rail

import (
	"net/http"
	"strings"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// SettleTest plays the rail of a test session, for its merchant. It reads the session first, which decides about the key and
// whose session it is: nobody is in a hurry here.
func (h *Handler) SettleTest(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	if !from.TestMode {
		return h.gate.AdmitInvalid(e, w, r, from, ErrTestKeysOnly)
	}
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	payment, err := readTestPayment(w, r)
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	admitted, sess, err := h.store.Session(r.Context(), from.Admission(), id)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	settlement, err := report(r.Context(), id, payment.complete(sess), h.store.SettleTest)
	if err != nil {
		return err
	}
	if settlement.Unstored {
		h.unstored.WithLabelValues(modeTest).Inc()
	}
	return web.Respond(w, http.StatusOK, newSettlementResult(settlement))
}

// testPayment is a report as a rail's, of which amount and reference may be missing.
type testPayment session.Payment

// complete returns the payment of a session: by default of the session's amount, and with a reference derived from outcome, amount and
// another currency.
func (p testPayment) complete(sess session.Session) session.Payment {
	payment := session.Payment(p)
	if payment.AmountCents == 0 {
		payment.AmountCents = sess.Charge.AmountCents
	}
	if payment.Ref == "" {
		payment.Ref = session.NewTestPayment(payment.Outcome, payment.AmountCents).Ref
		if payment.Currency != "" && payment.Currency != sess.Currency {
			payment.Ref += "_" + strings.ToLower(payment.Currency)
		}
	}
	return payment
}

// readTestPayment reads the body of a played report: as a rail's, but every field may be missing, and the body too.
func readTestPayment(w http.ResponseWriter, r *http.Request) (testPayment, error) {
	fields := &web.Object{}
	if r.ContentLength != 0 {
		var err error
		if fields, err = web.ReadObject(w, r); err != nil {
			return testPayment{}, err
		}
	}
	payment := decodePayment(fields)
	if _, given := fields.Given("outcome"); !given {
		payment.Outcome = session.Completed
	}
	whole := payment
	if _, given := fields.Given("amountCents"); !given {
		whole.AmountCents = 1
	}
	if _, given := fields.Given("paymentRef"); !given {
		whole.Ref = "default"
	}
	if err := fields.Finish(w.Header(), true); err != nil {
		return testPayment{}, err
	}
	return testPayment(payment), whole.Validate()
}
