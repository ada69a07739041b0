package sessions

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// orderSessions is the response of GET /api/v1/sessions?orderRef=.
type orderSessions struct {
	Sessions []payments.Payment `json:"sessions"`
	More     bool               `json:"more"`
}

// endedSessions is the response of GET /api/v1/sessions?endedFrom=.
type endedSessions struct {
	Sessions []payments.Payment `json:"sessions"`
	// Movements is present if the request asks for them.
	Movements []payments.Movement `json:"movements,omitzero"`
	// Cursor is that of the next page; absent: there is none.
	Cursor string `json:"cursor,omitempty"`
	// CompleteFrom is present if endedFrom is earlier than what is kept.
	CompleteFrom int64 `json:"completeFrom,omitempty"`
}

// ByQuery chooses the handler of a list: one for the sessions of an order, one for those with a reference, and one for all other queries.
func ByQuery(order, reference, other web.Handler) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		switch query := r.URL.Query(); {
		case query.Has(orderRefParameter):
			return order(e, w, r)
		case query.Has(referenceParameter):
			return reference(e, w, r)
		}
		return other(e, w, r)
	}
}

// ListOrder lists the sessions of an order.
func (h *Handler) ListOrder(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	query, err := parseList(r, session.Account(from.Merchant.ID, from.TestMode))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	admitted, listed, err := h.store.OrderSessions(r.Context(), from.Admission(), query.orderRef)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	response := orderSessions{Sessions: make([]payments.Payment, 0, len(listed.Sessions)), More: listed.More}
	for i := range listed.Sessions {
		response.Sessions = append(response.Sessions, h.newView(&listed.Sessions[i]))
	}
	return web.Respond(w, http.StatusOK, response)
}

// ListEnded lists the sessions that ended in a period, and with movementsParameter the money that moved besides. Both are in one list of the store, so
// that one cursor goes through both.
func (h *Handler) ListEnded(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	query, err := parseList(r, session.Account(from.Merchant.ID, from.TestMode))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	admitted, page, err := h.store.Ended(r.Context(), from.Admission(), query.ended)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	return h.respondEnded(w, from, &page, query.ended)
}

// ListReference lists the session with a reference on its receipt.
func (h *Handler) ListReference(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	query, err := parseList(r, session.Account(from.Merchant.ID, from.TestMode))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	now := h.now()
	admitted, page, err := h.store.FindPaid(r.Context(), from.Admission(), query.reference, query.ended.Before, now)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	query.ended.From = query.reference.PaidAt(now)
	return h.respondEnded(w, from, &page, query.ended)
}

func (h *Handler) respondEnded(w http.ResponseWriter, from caller.Caller, page *store.EndedPage, query store.EndedQuery) error {
	response := endedSessions{Sessions: make([]payments.Payment, 0, len(page.Sessions))}
	if query.Money {
		response.Movements = []payments.Movement{}
	}
	for i := range page.Sessions {
		line := &page.Sessions[i]
		if movement, ok := payments.NewMovement(&line.Session, line.Refused, line.Refund, line.Entry.RecordedAt()); ok {
			response.Movements = append(response.Movements, movement)
			continue
		}
		response.Sessions = append(response.Sessions, h.newView(&line.Session))
	}
	if page.Next != (feed.EntryID{}) {
		response.Cursor = feed.Cursor{Account: session.Account(from.Merchant.ID, from.TestMode), Entry: page.Next}.String()
	}
	if page.Since.After(query.From) {
		response.CompleteFrom = page.Since.UnixMilli()
	}
	return web.Respond(w, http.StatusOK, response)
}

// listQuery is what a list is asked for.
type listQuery struct {
	orderRef  string            // empty: ended sessions are
	reference session.Reference // of a receipt, only of ListReference
	ended     store.EndedQuery
}

// The parameters of a list.
const (
	orderRefParameter  = "orderRef"
	referenceParameter = "reference"
	endedFromParameter = "endedFrom"
	endedToParameter   = "endedTo"
	statusParameter    = "status"
	movementsParameter = "movements"
	cursorParameter    = "cursor"
	limitParameter     = "limit"
)

const (
	defaultEnded = 100
	maxEnded     = 200
)

// parseList reads the parameters. The error is for the caller, and names the parameter.
func parseList(r *http.Request, account string) (listQuery, error) {
	values, err := web.ReadQuery(r, orderRefParameter, referenceParameter, endedFromParameter, endedToParameter, statusParameter, movementsParameter, cursorParameter, limitParameter)
	if err != nil {
		return listQuery{}, err
	}
	if values.Has(orderRefParameter) {
		if err := onlyWith(orderRefParameter, values); err != nil {
			return listQuery{}, err
		}
		charge := session.Charge{AmountCents: 1, OrderRef: values.Get(orderRefParameter)}
		if charge.OrderRef == "" {
			return listQuery{}, web.RequestError("orderRef must not be empty")
		}
		return listQuery{orderRef: charge.OrderRef}, charge.Validate()
	}
	if values.Has(referenceParameter) {
		return parseReference(values, account)
	}
	ended, err := parseEnded(values, account)
	return listQuery{ended: ended}, err
}

// onlyWith returns the error of a query that has other parameters than this one and the allowed ones.
func onlyWith(parameter string, values url.Values, allowed ...string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != parameter && !slices.Contains(allowed, name) {
			return web.RequestError(name + " cannot be combined with " + parameter)
		}
	}
	return nil
}

func parseReference(values url.Values, account string) (query listQuery, err error) {
	if err := onlyWith(referenceParameter, values, cursorParameter); err != nil {
		return query, err
	}
	var ok bool
	if query.reference, ok = session.ParseReference(values.Get(referenceParameter)); !ok {
		return query, web.RequestError("reference must be one of a receipt, such as PHPG-2J6W")
	}
	query.ended.Before, err = parseCursor(values, account)
	return query, err
}

// parseCursor reads where a page begins; zero: at the newest.
func parseCursor(values url.Values, account string) (feed.EntryID, error) {
	if !values.Has(cursorParameter) {
		return feed.EntryID{}, nil
	}
	cursor, err := feed.ParseCursor(account, values.Get(cursorParameter))
	if err != nil || cursor.Entry == (feed.EntryID{}) {
		return feed.EntryID{}, web.RequestError("cursor must be one that an earlier page of this list returned")
	}
	return cursor.Entry, nil
}

// parseEnded reads the parameters of a list of ended sessions.
func parseEnded(values url.Values, account string) (store.EndedQuery, error) {
	query := store.EndedQuery{Limit: defaultEnded}
	if !values.Has(endedFromParameter) {
		return query, web.RequestError("give orderRef, or reference, or endedFrom and optionally endedTo, status, movements, cursor and limit")
	}
	from, err := parseTime(values, endedFromParameter)
	if err != nil {
		return query, err
	}
	query.From = from
	if values.Has(endedToParameter) {
		if query.To, err = parseTime(values, endedToParameter); err != nil {
			return query, err
		}
		if !query.From.Before(query.To) {
			return query, web.RequestError("endedTo must be later than endedFrom")
		}
	}
	if values.Has(statusParameter) {
		if query.Status = session.Status(values.Get(statusParameter)); !query.Status.Final() {
			return query, web.RequestError("status must be COMPLETED, FAILED, EXPIRED or CANCELLED; no list of a period has pending sessions")
		}
	}
	if query.Money, err = parseMovements(values); err != nil {
		return query, err
	}
	if values.Has(limitParameter) {
		limit, ok := web.ParseInteger(values.Get(limitParameter), 1, maxEnded)
		if !ok {
			return query, web.RequestError(fmt.Sprintf("limit must be an integer from 1 to %d", maxEnded))
		}
		query.Limit = int(limit)
	}
	query.Before, err = parseCursor(values, account)
	return query, err
}

// parseMovements reports whether the list has movements too.
func parseMovements(values url.Values) (bool, error) {
	switch asked := values.Get(movementsParameter); {
	case !values.Has(movementsParameter), asked == "false":
		return false, nil
	case asked != "true":
		return false, web.RequestError("movements must be true or false")
	case values.Has(statusParameter):
		return false, web.RequestError("movements cannot be combined with status, which no movement has")
	}
	return true, nil
}

func parseTime(values url.Values, name string) (time.Time, error) {
	millis, ok := web.ParseInteger(values.Get(name), 0, session.MaxTimestamp)
	at := time.UnixMilli(millis).UTC()
	if !ok || !session.ValidTime(at) {
		return time.Time{}, web.RequestError(name + " " + session.TimestampRule)
	}
	return at, nil
}
