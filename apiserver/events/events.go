// Package events has a merchant read its feed: what happened to its sessions and keys, in order.
package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	defaultLimit = 100
	maxLimit     = 500
)

// LostError is the error of a cursor whose event was lost in a failover of Redis. Its body has the cursor to go on with.
type LostError struct{ feed.LostError }

// Unwrap is for errors.As.
func (e LostError) Unwrap() error { return e.LostError }

// Error is written for the caller.
func (LostError) Error() string {
	return "the event of the cursor was lost in a failover, and maybe others with it; go on with the cursor in this body"
}

// Body is that of the response.
func (e LostError) Body() any {
	return struct {
		Error  string `json:"error"`
		Cursor string `json:"cursor"`
	}{e.Error(), e.Survivor.String()}
}

// Options are those of a Handler.
type Options struct {
	Store *store.Store
	Gate  *caller.Gate
	Live  *live.Hub
	// LongPoll has a request wait for an event.
	LongPoll   web.LongPoll
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Handler has a merchant read its feed.
type Handler struct {
	Options

	corrupt prometheus.Counter
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{Options: o, corrupt: promauto.With(o.Registerer).NewCounter(prometheus.CounterOpts{
		Name: "merchant_operator_feed_corrupt_entries_total",
		Help: "Entries of feeds that could not be read and were passed over, each time they were read.",
	})}
}

// query is what a request asks for.
type query struct {
	after feed.Cursor
	limit int
	wait  time.Duration
}

func readQuery(r *http.Request, account string) (query, error) {
	values, err := web.ReadQuery(r, "after", "limit", web.WaitParameter)
	if err != nil {
		return query{}, err
	}
	q := query{after: feed.Cursor{Account: account}, limit: defaultLimit}
	if text := values.Get("after"); text != "" {
		if q.after, err = feed.ParseCursor(account, text); err != nil {
			return query{}, web.RequestError("after must be a cursor of this feed")
		}
	}
	if values.Has("limit") {
		limit, ok := web.ParseInteger(values.Get("limit"), 1, maxLimit)
		if !ok {
			return query{}, web.RequestError(fmt.Sprintf("limit must be an integer from 1 to %d", maxLimit))
		}
		q.limit = int(limit)
	}
	q.wait, err = web.ParseWait(values)
	return q, err
}

// List responds with the events after a cursor. If there is none it waits for one, as long as the request asks for. A wait ends with a whole
// admission: a key that was rotated meanwhile gets 401, not payments.
func (h *Handler) List(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	account := session.Account(from.Merchant.ID, from.TestMode)
	q, err := readQuery(r, account)
	if err != nil {
		return h.Gate.AdmitInvalid(e, w, r, from, err)
	}
	var watch *live.FeedWatch
	if q.wait > 0 && r.Method != http.MethodHead {
		// Before the read, so that nothing is missed.
		if watch, err = h.Live.WatchFeed(from.Merchant.Namespace, account); err != nil {
			return h.Gate.AdmitInvalid(e, w, r, from, err)
		}
		defer watch.Stop()
	}
	page, err := h.read(e, w, r, from, q)
	if err == nil && watch != nil && len(page.Entries) == 0 && page.Corrupt == 0 {
		page, err = h.await(e, w, r, from, q, watch)
	}
	if err != nil {
		return err
	}
	return respond(w, page)
}

func (h *Handler) read(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller, q query) (store.FeedPage, error) {
	admitted, page, err := h.Store.Feed(r.Context(), from.Admission(), q.after, q.limit)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if lost, ok := errors.AsType[feed.LostError](err); ok {
		return store.FeedPage{}, LostError{lost}
	}
	if page.Corrupt > 0 {
		h.corrupt.Add(float64(page.Corrupt))
		h.Log.Error("could not read entries of a feed", "merchantID", from.Merchant.ID, "entries", page.Corrupt)
	}
	return page, err
}

// await reads the feed when it has changed, and when the wait or this replica ends; as the caller that it is by then.
func (h *Handler) await(
	e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller, q query, watch *live.FeedWatch) (store.FeedPage, error) {
	wait, err := h.LongPoll.Start(e, w, r, q.wait)
	if err != nil {
		return store.FeedPage{}, err
	}
	defer wait.Stop()
	for {
		changed, err := wait.For(watch.Changed())
		if err != nil {
			return store.FeedPage{}, err
		}
		web.ClearQuota(w.Header())
		from, err := h.Gate.Refresh(e, r, from)
		if err != nil {
			return store.FeedPage{}, err
		}
		page, err := h.read(e, w, r, from, q)
		if !changed || err != nil || len(page.Entries) > 0 || page.Corrupt > 0 {
			return page, err
		}
	}
}

// item is an event of a page.
type item struct {
	ID     string          `json:"id"`
	Cursor string          `json:"cursor"`
	Event  json.RawMessage `json:"event"`
}

func respond(w http.ResponseWriter, page store.FeedPage) error {
	answer := struct {
		Items  []item `json:"items"`
		Cursor string `json:"cursor"`
	}{make([]item, 0, len(page.Entries)), page.Cursor.String()}
	for _, entry := range page.Entries {
		body, err := feed.Encode(entry.Event)
		if err != nil {
			return err
		}
		cursor := entry.Cursor
		if cursor.Entry == page.Cursor.Entry {
			cursor = page.Cursor
		}
		answer.Items = append(answer.Items, item{entry.Event.ID, cursor.String(), body})
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // an event has the bytes of its webhook
	if err := encoder.Encode(answer); err != nil {
		return fmt.Errorf("encode a page of the feed: %w", err)
	}
	return web.RespondJSON(w, http.StatusOK, body.Bytes())
}
