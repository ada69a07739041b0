package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/events"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/rail"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

const (
	noCode       = "" // of a 401: all of them are equal
	ownMessage   = "" // the error is written for the caller
	badKey       = "missing or invalid API key"
	noSession    = "session not found"
	retryLater   = "temporarily unavailable; retry"
	retryCharge  = "temporarily unavailable; retry with the same Idempotency-Key"
	reportAgain  = "temporarily unavailable; send the same report again"
	rotateAgain  = "unknown whether the key was rotated; send the same request again"
	notCompleted = "key rotation did not complete; if the key no longer works, rotate it through its ApiKey"
)

// answers has the response to each error: the first row that matches. Errors of a write that may have happened stand before their causes. An
// error that is missing here is a bug and gets 500. The list of codes is closed: the OpenAPI documents have all of them.
var answers = []struct {
	match   func(error) error // returns the error itself, nil if it is another one
	status  int
	code    string
	message string
}{
	{as[web.RequestError], http.StatusBadRequest, "invalid_request", ownMessage},
	{as[*session.FieldError], http.StatusBadRequest, "invalid_request", ownMessage},
	{is(clientaddr.ErrMalformed), http.StatusBadRequest, "invalid_request", "X-Forwarded-For is malformed"},
	{as[web.UnknownFieldError], http.StatusBadRequest, "unknown_field", ownMessage},
	{is(web.ErrBodyTimeout), http.StatusRequestTimeout, "request_timeout", "the body did not come within 10 seconds"},
	{is(store.ErrIdempotencyMismatch), http.StatusBadRequest, "idempotency_mismatch", "Idempotency-Key was already used for a different charge"},

	{as[caller.UnauthorizedError], http.StatusUnauthorized, noCode, badKey},
	{is(admission.ErrKeyRejected), http.StatusUnauthorized, noCode, badKey},
	{is(authz.ErrUnauthenticated), http.StatusUnauthorized, noCode, "missing or invalid token"},
	{is(authz.ErrForbidden), http.StatusForbidden, "account_not_allowed", "account is not allowed to use this path"},
	{is(admission.ErrMerchantNotActive), http.StatusForbidden, "merchant_not_active", "merchant is not active"},
	{as[caller.PermissionError], http.StatusForbidden, "permission_missing", ownMessage},
	{is(caller.ErrPlainHTTP), http.StatusForbidden, "tls_required", "API keys and signing secrets are issued over TLS only; start the API with --internal-cert-dir"},

	{is(payer.ErrCrossOrigin), http.StatusForbidden, "cross_origin", "the form was sent by a page of another origin"},

	{is(web.ErrNoRoute), http.StatusNotFound, "path_not_found", "path not found"},
	{as[web.MethodError], http.StatusMethodNotAllowed, "method_not_allowed", ownMessage},
	{is(rail.ErrTestKeysOnly), http.StatusNotFound, "test_key_required", "path not found for live keys; use a test key (mk_test_)"},
	{is(session.ErrMalformedID), http.StatusNotFound, "session_not_found", noSession},
	{is(store.ErrNotFound), http.StatusNotFound, "session_not_found", noSession},
	{is(store.ErrNoPayment), http.StatusNotFound, "payment_not_found", "your account has reported no money with this paymentRef for the session"},
	{is(store.ErrNoRequest), http.StatusNotFound, "refund_not_found", "the merchant has asked for no refund with this refundRef of this payment of your account"},
	{is(keys.ErrNoKey), http.StatusNotFound, "key_not_found", "API key not found"},
	{is(keys.ErrNoSigningSecret), http.StatusNotFound, "signing_secret_not_found", "no new signing secret for this nonce: not yet, or no longer"},

	{is(feed.ErrCursorExpired), http.StatusGone, "cursor_expired", "events after the cursor are not kept any more; read from the beginning, without after"},
	{as[events.LostError], http.StatusConflict, "events_lost", ownMessage},

	{as[sessions.EndedError], http.StatusConflict, "session_ended", ownMessage},
	{is(store.ErrTestSession), http.StatusConflict, "test_session", "session is of test mode, which no rail settles; refund the payment"},
	{is(store.ErrPaymentConflict), http.StatusConflict, "payment_conflict", "report contradicts an earlier report with the same paymentRef"},
	{is(sessions.ErrPaymentInProgress), http.StatusConflict, "payment_in_progress", "a payment is in progress; retry after the time in Retry-After"},
	{as[store.HeldError], http.StatusConflict, "held", "another payment holds the session; retry after the time in Retry-After"},
	{is(store.ErrReferenceUsed), http.StatusConflict, "reference_used", "paymentRef was already reported for this session"},
	{is(store.ErrNotHoldable), http.StatusConflict, "session_ended", "session has ended"},
	{is(rail.ErrMerchantNotActive), http.StatusConflict, "merchant_not_active", "merchant is not active"},
	{is(store.ErrExpiresTooSoon), http.StatusConflict, "expires_too_soon", "session expires before the end of the hold"},
	{is(store.ErrHoldTooLong), http.StatusConflict, "hold_too_long", fmt.Sprintf("your account can hold a session for %.0f minutes in all", session.MaxHeld.Minutes())},
	{is(store.ErrRefundConflict), http.StatusConflict, "refund_conflict", "an earlier refund with the same refundRef has another paymentRef or amountCents"},
	{is(store.ErrRefundExceedsPayment), http.StatusConflict, "refund_exceeds_payment", "the refunds of a payment must not exceed its amount"},
	{is(store.ErrTooManyRefunds), http.StatusConflict, "too_many_refunds", "session has 100 refunds of your account for which no merchant has asked, and keeps no more"},
	{is(store.ErrNoMoreRequests), http.StatusConflict, "too_many_refunds", "session keeps at most 20 refunds that were asked for, 10 of them open"},
	{is(store.ErrNotCompleted), http.StatusConflict, "session_not_completed", "no payment has completed the session"},
	{is(store.ErrRequestConflict), http.StatusConflict, "refund_conflict", "Idempotency-Key was already used for a refund of another amount"},
	{is(store.ErrRequestConfirmed), http.StatusConflict, "refund_confirmed", "the refund was confirmed, and cannot be rejected"},
	{as[keys.GenerationError], http.StatusConflict, "generation_conflict", ownMessage},

	{is(sessions.ErrTooMany), http.StatusTooManyRequests, "rate_limited", "the merchant made as many sessions and refunds as one may in a day; retry after the time in Retry-After"},
	{is(admission.ErrRateLimited), http.StatusTooManyRequests, "rate_limited", "rate limit exceeded; retry after the time in Retry-After"},
	{is(payer.ErrCrowded), http.StatusServiceUnavailable, "unavailable", "too many payers are waiting; retry after the time in Retry-After"},
	{is(live.ErrTooMany), http.StatusServiceUnavailable, "too_many_streams", "too many open streams; poll, or retry after the time in Retry-After"},
	{is(live.ErrTooManyOfAccount), http.StatusServiceUnavailable, "too_many_streams", "too many requests wait for events of this account; end some, or poll"},
	{is(live.ErrTooManyFromAddress), http.StatusServiceUnavailable, "too_many_streams", "too many open streams of your address; close some, or poll"},

	{is(sessions.ErrChargeUnknown), http.StatusServiceUnavailable, "charge_unknown", retryCharge},
	{is(sessions.ErrRefundUnknown), http.StatusServiceUnavailable, "refund_unknown", retryCharge},
	{is(rail.ErrReportUnknown), http.StatusServiceUnavailable, "report_unknown", reportAgain},
	{is(keys.ErrRotationUnknown), http.StatusServiceUnavailable, "rotation_unknown", rotateAgain},
	{is(keys.ErrRotationIncomplete), http.StatusServiceUnavailable, "rotation_incomplete", notCompleted},
	{is(redis.ErrUnavailable), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(redis.ErrCorrupt), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(keys.ErrKubernetes), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(keys.ErrUnreadableKey), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(keys.ErrUnreadableSigningSecret), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(caller.ErrStale), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(feed.ErrUnsupported), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(rail.ErrMerchantUnknown), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(directory.ErrNewerVersion), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(authz.ErrTooManyRefused), http.StatusServiceUnavailable, "unavailable", retryLater},
	{is(authz.ErrUnavailable), http.StatusServiceUnavailable, "unavailable", retryLater},
}

// overloads are the errors of which one client can cause any number.
var overloads = []error{payer.ErrCrowded, live.ErrTooMany, live.ErrTooManyFromAddress, live.ErrTooManyOfAccount}

func is(target error) func(error) error {
	return func(err error) error {
		if errors.Is(err, target) {
			return target
		}
		return nil
	}
}

func as[E error](err error) error {
	if found, ok := errors.AsType[E](err); ok {
		return found
	}
	return nil
}

// Answer returns the response to an error.
func Answer(err error) web.Answer {
	for _, row := range answers {
		found := row.match(err)
		if found == nil {
			continue
		}
		response := web.Answer{Status: row.status, Code: row.code, Message: row.message, Overload: slices.Contains(overloads, found)}
		if response.Message == ownMessage {
			response.Message = found.Error()
		}
		if detailed, ok := found.(interface{ Body() any }); ok {
			response.Body = detailed.Body()
		}
		return response
	}
	return web.Answer{Status: http.StatusInternalServerError, Code: "internal_error", Message: "internal error"}
}
