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

// ByOrder chooses the handler of a list: one for the sessions of an order, and one for all other queries.
func ByOrder(order, other web.Handler) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		if r.URL.Query().Has(orderRefParameter) {
			return order(e, w, r)
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
	response := endedSessions{Sessions: make([]payments.Payment, 0, len(page.Sessions))}
	if query.ended.Money {
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
	if page.Since.After(query.ended.From) {
		response.CompleteFrom = page.Since.UnixMilli()
	}
	return web.Respond(w, http.StatusOK, response)
}

// listQuery is what a list is asked for.
type listQuery struct {
	orderRef string // empty: ended sessions are
	ended    store.EndedQuery
}

// The parameters of a list.
const (
	orderRefParameter  = "orderRef"
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
	values, err := web.ReadQuery(r, orderRefParameter, endedFromParameter, endedToParameter, statusParameter, movementsParameter, cursorParameter, limitParameter)
	if err != nil {
		return listQuery{}, err
	}
	if values.Has(orderRefParameter) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if name != orderRefParameter {
				return listQuery{}, web.RequestError(name + " cannot be combined with orderRef")
			}
		}
		charge := session.Charge{AmountCents: 1, OrderRef: values.Get(orderRefParameter)}
		if charge.OrderRef == "" {
			return listQuery{}, web.RequestError("orderRef must not be empty")
		}
		return listQuery{orderRef: charge.OrderRef}, charge.Validate()
	}
	ended, err := parseEnded(values, account)
	return listQuery{ended: ended}, err
}

// parseEnded reads the parameters of a list of ended sessions.
func parseEnded(values url.Values, account string) (store.EndedQuery, error) {
	query := store.EndedQuery{Limit: defaultEnded}
	if !values.Has(endedFromParameter) {
		return query, web.RequestError("give orderRef, or endedFrom and optionally endedTo, status, movements, cursor and limit")
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
			return query, web.RequestError("status must be COMPLETED, FAILED, EXPIRED or CANCELLED")
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
	if values.Has(cursorParameter) {
		cursor, err := feed.ParseCursor(account, values.Get(cursorParameter))
		if err != nil || cursor.Entry == (feed.EntryID{}) {
			return query, web.RequestError("cursor must be one that an earlier page of this list returned")
		}
		query.Before = cursor.Entry
	}
	return query, nil
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
