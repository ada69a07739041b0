package status

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// Health is the condition WebhookHealthy of a Merchant. The zero Health is that of a merchant without a webhook, or whose
// endpoint got no event yet: it has no condition.
type Health struct {
	Status          metav1.ConditionStatus
	Since           time.Time
	Reason, Message string
}

func (h Health) healthy() bool { return h.Status == metav1.ConditionTrue }

// Reasons of the condition WebhookHealthy. All but the first three are of an unhealthy endpoint.
const (
	reasonHealthy = "Healthy"
	// reasonRetrying: the first attempts failed, for less than outbox.UnhealthyAfter.
	reasonRetrying        = "Retrying"
	reasonEndpointChanged = "EndpointChanged"

	reasonAddressRefused   = "AddressRefused"
	reasonURLRefused       = "URLRefused"
	reasonTLSFailed        = "TLSFailed"
	reasonRedirected       = "Redirected"
	reasonRejected         = "Rejected"
	reasonRetryLater       = "RetryLater"
	reasonServerError      = "ServerError"
	reasonInvalidAnswer    = "InvalidAnswer"
	reasonNoAnswer         = "NoAnswer"
	reasonTimeout          = "Timeout"
	reasonNameNotResolved  = "NameNotResolved"
	reasonConnectionFailed = "ConnectionFailed"
	reasonDeliveryFailed   = "DeliveryFailed"

	reasonEndpointGone     = "EndpointGone"
	reasonEndpointDisabled = "EndpointDisabled"
)

// messages say what happened and what to do, for each reason of an unhealthy endpoint.
var messages = map[string]string{
	reasonAddressRefused: "The address is not public, so nothing is sent there. Set a public spec.webhook.url, or allow the network " +
		"with --webhook-allow-cidrs, or the domain with --webhook-deny-domains, of the dispatcher.",
	reasonURLRefused: "The URL is not allowed. Use https in spec.webhook.url, or allow http with --webhook-allow-http of the dispatcher.",
	reasonTLSFailed: "The TLS handshake failed. The receiver needs a valid certificate of a public authority for its host name, with " +
		"all intermediate certificates.",
	reasonRedirected: "The receiver redirects, and redirects are not followed. Set spec.webhook.url to the final URL.",
	reasonRejected: "The receiver rejects the event. Check the path of spec.webhook.url, the receiver's signing secret, and that no " +
		"login is required.",
	reasonRetryLater:       "The receiver accepts no events at present. Raise its limits.",
	reasonServerError:      "The receiver fails. Look into its log.",
	reasonInvalidAnswer:    "The answer is not of a web server. Check what listens at spec.webhook.url.",
	reasonNoAnswer:         "The connection ended without an answer. Check the receiver, and the proxy in front of it.",
	reasonTimeout:          "No answer within 15 seconds. The receiver must answer at once, and work later.",
	reasonNameNotResolved:  "The host name does not resolve. Check spec.webhook.url and the DNS records.",
	reasonConnectionFailed: "No connection is possible. Check that the receiver runs, and that its firewall allows the dispatcher.",
	reasonDeliveryFailed:   "Events could not be sent. Look into the log of the dispatcher.",

	reasonEndpointGone:     "The receiver answered 410 Gone, so the endpoint is disabled.",
	reasonEndpointDisabled: "Every attempt has failed for too long, so the endpoint is disabled.",
}

// unhealthyReasons are those of an unhealthy endpoint, a closed list.
func unhealthyReasons() []string { return slices.Sorted(maps.Keys(messages)) }

// FailureReason returns the reason of a failed attempt in the words of conditions, and whether retrying cannot fix it.
func FailureReason(result delivery.Result) (reason string, permanent bool) {
	switch result.Reason {
	case delivery.ReasonRefusedAddress:
		return reasonAddressRefused, true
	case delivery.ReasonRefusedScheme, delivery.ReasonBadURL:
		return reasonURLRefused, true
	case delivery.ReasonTLS:
		return reasonTLSFailed, true
	case delivery.ReasonRedirect:
		return reasonRedirected, true
	case delivery.ReasonGone:
		return reasonEndpointGone, true
	case delivery.ReasonStatus4xx:
		switch result.Status {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return reasonRetryLater, false
		}
		return reasonRejected, true
	case delivery.ReasonStatus5xx:
		return reasonServerError, false
	case delivery.ReasonStatusOther:
		return reasonInvalidAnswer, false
	case delivery.ReasonNoAnswer:
		return reasonNoAnswer, false
	case delivery.ReasonTimeout:
		return reasonTimeout, false
	case delivery.ReasonDNS:
		return reasonNameNotResolved, false
	case delivery.ReasonConnect:
		return reasonConnectionFailed, false
	}
	return reasonDeliveryFailed, false
}

const (
	disabledHint = " Events become dead letters until spec.webhook.url or spec.webhook.resumeTrigger changes."
	retriedHint  = " Failing since %s. Each event is retried for three days, then it is a dead letter."
	testHint     = " To try the endpoint, change spec.webhook.testTrigger."
)

// newHealth is pure; now is the time of Redis, as all times of the state.
func newHealth(endpoint endpoints.Endpoint, state outbox.EndpointState, now time.Time) Health {
	failure := state.LastFailure
	switch since := unhealthySince(state, now); {
	case endpoint.URL == "":
		return Health{}
	case state.Disabled() && state.Cause == outbox.EndpointGone:
		return Health{metav1.ConditionFalse, state.DisabledAt, reasonEndpointGone, messages[reasonEndpointGone] + disabledHint}
	case state.Disabled():
		return Health{metav1.ConditionFalse, state.DisabledAt, reasonEndpointDisabled, messages[reasonEndpointDisabled] + disabledHint}
	case !since.IsZero() && state.FailingSince.IsZero(): // no event was tried yet
		return Health{metav1.ConditionFalse, since, failure.Reason, messages[failure.Reason]}
	case !since.IsZero():
		message := describe(failure) + fmt.Sprintf(retriedHint, state.FailingSince.Format(time.RFC3339))
		return Health{metav1.ConditionFalse, since, failure.Reason, message}
	case !state.HealthySince.IsZero():
		return Health{metav1.ConditionTrue, state.HealthySince, reasonHealthy, "The endpoint accepts events."}
	case !state.FailingSince.IsZero():
		return Health{metav1.ConditionUnknown, state.FailingSince, reasonRetrying, "No event was accepted yet. " + describe(failure)}
	case !state.ChangedAt.IsZero():
		return Health{metav1.ConditionUnknown, state.ChangedAt, reasonEndpointChanged, "No event was sent since the endpoint, or the rule that refused it, changed." + testHint}
	}
	return Health{}
}

// unhealthySince is when an endpoint that fails became unhealthy: at the first failure that retrying cannot fix, or after
// UnhealthyAfter. Zero: it did not.
func unhealthySince(state outbox.EndpointState, now time.Time) time.Time {
	since := state.PermanentSince
	if state.FailingSince.IsZero() {
		return since
	}
	patience := state.FailingSince.Add(outbox.UnhealthyAfter)
	if !now.Before(patience) && (since.IsZero() || patience.Before(since)) {
		return patience
	}
	return since
}

func describe(failure outbox.AttemptFailure) string {
	if status := failure.Status(); status != 0 {
		return fmt.Sprintf("HTTP %d: %s", status, messages[failure.Reason])
	}
	return messages[failure.Reason]
}

// eventType is the type of the event about a change to this health; empty: there is none. It depends on the state alone, not on
// what was reported before: which of two dispatchers has reported last, nobody may know.
func (h Health) eventType(state outbox.EndpointState) string {
	switch {
	case h.Status == metav1.ConditionFalse:
		return corev1.EventTypeWarning
	case !h.Since.IsZero() && h.Since.Equal(state.RecoveredAt):
		return corev1.EventTypeNormal
	}
	return ""
}
