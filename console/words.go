package console

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

// The words that shop owners read for what Events, conditions and states call otherwise.

// activityWords are by the reason of an Event. What is not here is of use to the platform team only.
var activityWords = map[string]string{
	actionIssue:         "A new key was issued",
	actionRotate:        "The key was replaced",
	actionDisable:       "The key was switched off",
	actionDelete:        "The key was deleted",
	actionEditAllowlist: "The allowlist was changed",
	actionEditWebhook:   "The webhook was changed",
	actionResumeWebhook: "The webhook was switched on again",
	actionRotateSigning: "A new signing secret was asked for",
	actionResend:        "Events were sent again",

	"Rotated":           "A new key was issued",
	"KeyLost":           "The key was lost and no longer works",
	"ExpiringSoon":      "The key expires soon",
	"RotatingSoon":      "The key will be replaced soon",
	"Expired":           "The key has expired",
	"Disabled":          "The key was switched off",
	"MerchantSuspended": "The platform team has suspended the merchant",
	"MerchantClosed":    "The platform team has closed the merchant",
	"EndpointGone":      "The webhook was switched off: your server answered that it is gone for good",
	"EndpointDisabled":  "The webhook was switched off: your server has accepted nothing for days",
	"Healthy":           "Your server accepts events again",
	"EndpointChanged":   "The webhook was changed; nothing was sent to it since",
	"SigningSecretLost": "The signing secret was lost and replaced: your server needs the new one",
}

// webhookReasons are why a webhook fails. The page says more of it under Webhook.
var webhookReasons = []string{
	"AddressRefused", "URLRefused", "TLSFailed", "Redirected", "Rejected", "RetryLater", "ServerError", "InvalidAnswer", "NoAnswer", "Timeout",
	"NameNotResolved", "ConnectionFailed", "DeliveryFailed",
}

// activityText is what an Event is to a shop owner; empty: nothing.
func activityText(e *eventsv1.Event) string {
	words := activityWords[e.Reason]
	switch {
	case words == "" && e.Type == corev1.EventTypeWarning && slices.Contains(webhookReasons, e.Reason):
		return "Your server does not accept events"
	case words == "" || e.ReportingController != fieldOwner:
		return words
	}
	if _, who, named := strings.Cut(e.Note, " by "); named {
		if at := strings.LastIndex(who, " (generation"); at > 0 {
			words += " by " + who[:at]
		}
	}
	return words
}

// problemWords are by the reason of an ApiKey's condition Ready.
var problemWords = map[string]string{
	"Disabled":          "Switched off",
	"Expired":           "Expired",
	"MerchantSuspended": "Merchant suspended",
	"MerchantClosed":    "Merchant closed",
	"MerchantNotFound":  "Merchant deleted",
	"SecretConflict":    "Not delivered",
	"KeyDigestUsed":     "Not accepted",
	"KeyDigestClaimed":  "Not accepted",
	"TooManyKeyDigests": "Not accepted",
}
