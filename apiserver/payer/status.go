package payer

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// publicSession is the response of GET /api/v1/public/sessions/{id}, and the data of its events.
type publicSession struct {
	MerchantName string         `json:"merchantName"`
	AmountCents  int64          `json:"amountCents"`
	Status       session.Status `json:"status"`
	Livemode     *bool          `json:"livemode,omitempty"`
}

func publicView(sess *store.PublicSession) publicSession {
	return publicSession{MerchantName: sess.MerchantName, AmountCents: sess.AmountCents, Status: sess.Status, Livemode: web.Livemode(sess.TestMode)}
}

// publicID returns the session that somebody without a key asks for.
func publicID(e *web.Event, r *http.Request) (session.ID, error) {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return session.ID{}, err
	}
	if id.TestMode() {
		e.TestMode = true
	}
	return id, nil
}

// ask returns the session that somebody without a key asks for, and the subject of the limits of the client's address. An id that is none costs the
// address as much as one of a session: the answer is as long.
func (h *Handler) ask(e *web.Event, w http.ResponseWriter, r *http.Request) (id session.ID, subject string, err error) {
	address, err := h.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil {
		return session.ID{}, "", err
	}
	subject = clientaddr.LimitKey(address)
	if id, err = publicID(e, r); err == nil {
		return id, subject, nil
	}
	if quota, allowed := h.reads.Allow(subject); !allowed {
		e.SetQuota(w.Header(), web.AddressLimit, quota, admission.ErrRateLimited)
		err = admission.ErrRateLimited
	}
	return session.ID{}, "", err
}

// Status needs no key: anyone with the session id may read it, once, when it has ended, or as a stream.
func (h *Handler) Status(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	id, subject, err := h.ask(e, w, r)
	if err != nil {
		return err
	}
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	stream := wantsStream(r.Header)
	var watch *live.Watch
	if r.Method != http.MethodHead && (stream || wait > 0) {
		// Before the read, so that no change is missed. Over the limit Redis is not asked.
		if watch, err = h.live.Watch(h.tenant(id), id, subject); err != nil {
			return err
		}
		defer func() {
			if watch != nil {
				watch.Stop()
			}
		}()
	}
	sess, err := h.readPublic(e, w, r, subject, id)
	if err != nil {
		return err
	}
	expires := time.Now().Add(sess.ExpiresIn)
	if watch != nil {
		watch.Seen(sess)
	}
	switch {
	case stream && sess.Status.Final() && r.Header.Get("Last-Event-ID") == string(sess.Status):
		w.WriteHeader(http.StatusNoContent) // EventSource does not come back
		return nil
	case !stream && watch != nil && sess.Status == session.Pending:
		if sess, err = h.awaitEnd(e, w, r, watch, &sess, wait); err != nil {
			return err
		}
	}
	if sess.Status == session.Pending {
		w.Header()[expiresInHeader] = []string{secondsUntil(expires)}
	}
	if !stream {
		return web.Respond(w, http.StatusOK, publicView(&sess))
	}
	watched := watch
	watch = nil // the stream stops it
	return h.streamStatus(w, watched, &sess, expires)
}

// tenant returns the namespace of the session's Merchant; empty: no such Merchant is known.
func (h *Handler) tenant(id session.ID) string {
	if merchant := h.directory.Merchant(id.MerchantID()); merchant != nil {
		return merchant.Namespace
	}
	return ""
}

// readPublic reads what a payer may see. The limit of the address is counted twice: here for all sessions, and by Redis for all replicas, but
// only for the sessions of one bucket, because a script has one. The tighter one is in the headers.
func (h *Handler) readPublic(e *web.Event, w http.ResponseWriter, r *http.Request, subject string, id session.ID) (store.PublicSession, error) {
	caller := session.Account(subject, id.TestMode())
	quota, allowed := h.reads.Allow(caller)
	if !allowed {
		e.SetQuota(w.Header(), web.AddressLimit, quota, admission.ErrRateLimited)
		return store.PublicSession{}, admission.ErrRateLimited
	}
	inBucket, sess, err := h.readInTurn(r, subject, id)
	admitted := err == nil || errors.Is(err, store.ErrNotFound)
	if !admitted && !errors.Is(err, context.Canceled) { // of a client that left, Redis may have read it
		h.reads.Refund(caller)
	}
	if !admitted || inBucket.Remaining < quota.Remaining {
		quota = inBucket
	}
	e.SetQuota(w.Header(), web.AddressLimit, quota, err)
	return sess, err
}

// readInTurn reads a session in turn with other payers of the same Redis server.
func (h *Handler) readInTurn(r *http.Request, subject string, id session.ID) (quota ratelimit.Quota, sess store.PublicSession, err error) {
	payers := h.queues.to(h.store.Server(r.Context(), id))
	if err := payers.enter(r.Context()); err != nil {
		return ratelimit.Quota{}, store.PublicSession{}, err
	}
	defer func() { payers.leave(err) }() // before the answer: a client that does not read it keeps nobody waiting
	return h.store.PublicSession(r.Context(), store.PublicAdmission{Subject: subject, Limit: h.limit}, id)
}

// streamStatus answers with a stream; without a watch with its headers only, to HEAD.
func (h *Handler) streamStatus(w http.ResponseWriter, watch *live.Watch, sess *store.PublicSession, expires time.Time) error {
	w.Header().Set("Content-Type", eventStreamContent)
	w.Header().Set("X-Accel-Buffering", "no") // nginx passes on each event
	if watch == nil {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return h.streams.serve(w, watch, sess, expires)
}

// expiresInHeader is how many seconds a pending session has left, by the clock of the server.
const expiresInHeader = "Session-Expires-In"

// secondsUntil rounds up: a session with time left has a second left.
func secondsUntil(end time.Time) string {
	return strconv.FormatInt(int64((max(0, time.Until(end))+time.Second-1)/time.Second), 10)
}

// parseWait returns how long the response may wait. Unlike with a key, other parameters are ignored: browsers and proxies add some.
func parseWait(r *http.Request) (time.Duration, error) {
	if r.URL.RawQuery == "" {
		return 0, nil
	}
	return web.ParseWait(r.URL.Query())
}

const eventStreamContent = "text/event-stream"

// wantsStream reports whether the client names event streams among what it accepts. EventSource accepts nothing else.
func wantsStream(header http.Header) bool {
	for _, line := range header["Accept"] {
		if !strings.Contains(strings.ToLower(line), "event-stream") {
			continue
		}
		for part := range strings.SplitSeq(line, ",") {
			kind, parameters, err := mime.ParseMediaType(part)
			if quality, _ := strconv.ParseFloat(parameters["q"], 64); err == nil && kind == eventStreamContent && (parameters["q"] == "" || quality > 0) {
				return true
			}
		}
	}
	return false
}

// awaitEnd returns the session when it has ended, or as it was read when the wait or this replica ends before.
func (h *Handler) awaitEnd(
	e *web.Event, w http.ResponseWriter, r *http.Request, watch *live.Watch, sess *store.PublicSession, atMost time.Duration,
) (store.PublicSession, error) {
	wait, err := h.longPoll.Start(e, w, r, atMost)
	if err != nil {
		return store.PublicSession{}, err
	}
	defer wait.Stop()
	switch ended, err := wait.For(watch.Ended()); {
	case err != nil:
		return store.PublicSession{}, err
	case ended:
		return watch.Session()
	}
	return *sess, nil
}
