package rail

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// owedRefunds is the response of GET /internal/v1/refunds.
type owedRefunds struct {
	Refunds []owedRefund `json:"refunds"`
	// Cursor leads to the next page; absent: there is none.
	Cursor string `json:"cursor,omitempty"`
	// Incomplete: a server of Redis did not answer, so some of what is owed is missing. Read again later, from the beginning.
	Incomplete bool `json:"incomplete,omitempty"`
}

// owedRefund is money that the calling account has to send back, with the names under which it confirms the refund.
type owedRefund struct {
	SessionID   string `json:"sessionId"`
	PaymentRef  string `json:"paymentRef"`
	RefundRef   string `json:"refundRef"`
	AmountCents int64  `json:"amountCents"`
	Currency    string `json:"currency"`
	// Cause is requested, late, mismatched or merchant_deleted.
	Cause string `json:"cause"`
	// Reason is the merchant's, of a request.
	Reason string `json:"reason,omitempty"`
	// Since is when the payment was refused, or the refund asked for.
	Since    int64  `json:"since"`
	Merchant string `json:"merchantId"`
}

// causeRequested is the cause of what a merchant has asked for; the others are decisions about payments.
const causeRequested = "requested"

const (
	defaultOwed = 50
	maxOwed     = 100
)

// ListOwed responds with the refunds that the calling account owes, the oldest first.
func (h *Handler) ListOwed(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	after, limit, err := parseOwed(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := h.store.Owed(r.Context(), session.NewRail(account), after, limit)
	if err != nil {
		return err
	}
	response := owedRefunds{Refunds: make([]owedRefund, 0, len(page.Refunds)), Incomplete: page.Incomplete}
	for _, owed := range page.Refunds {
		cause := string(owed.Decision)
		if cause == "" {
			cause = causeRequested
		}
		response.Refunds = append(response.Refunds, owedRefund{
			SessionID: owed.Session.ID.String(), PaymentRef: owed.Refund.PaymentRef, RefundRef: owed.Refund.Ref, AmountCents: owed.Refund.AmountCents,
			Currency: owed.Currency, Cause: cause, Reason: owed.Reason, Since: owed.Since.UnixMilli(),
			Merchant: published.PublicMerchantID(owed.Session.MerchantID),
		})
	}
	if page.Next != (store.OwedPlace{}) {
		response.Cursor = formatOwedCursor(page.Next)
	}
	return web.Respond(w, http.StatusOK, response)
}

func parseOwed(query url.Values) (after store.OwedPlace, limit int, err error) {
	limit = defaultOwed
	for name, values := range query {
		switch {
		case name != "after" && name != "limit":
			continue
		case len(values) > 1:
			return after, 0, web.RequestError(name + " must be given at most once")
		case name == "limit":
			limit, err = strconv.Atoi(values[0])
			if err != nil || limit < 1 || limit > maxOwed {
				return after, 0, &session.FieldError{Field: "limit", Rule: "must be an integer from 1 to " + strconv.Itoa(maxOwed)}
			}
		default:
			if after, err = parseOwedCursor(values[0]); err != nil {
				return after, 0, &session.FieldError{Field: "after", Rule: "must be a cursor of this list"}
			}
		}
	}
	return after, limit, nil
}

func formatOwedCursor(place store.OwedPlace) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(place.At.UnixMilli(), 10) + " " + place.Member))
}

var errOwedCursor = errors.New("not a cursor of the list of what a rail owes")

// parseOwedCursor bounds the time too: a number that Redis rounds lets it scan the list again for each page.
func parseOwedCursor(cursor string) (store.OwedPlace, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	at, member, found := strings.Cut(string(text), " ")
	millis, numberErr := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || numberErr != nil || millis < 0 || millis > session.MaxTimestamp || len(cursor) > maxOwedCursor {
		return store.OwedPlace{}, errOwedCursor
	}
	return store.OwedPlace{At: time.UnixMilli(millis).UTC(), Member: member}, nil
}

// maxOwedCursor is more than any cursor has.
const maxOwedCursor = 512
