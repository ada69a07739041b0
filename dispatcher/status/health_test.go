package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

func TestNewHealth(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	timeout := outbox.AttemptFailure{Time: ago(time.Second), Reason: reasonTimeout}
	rejected := outbox.AttemptFailure{Time: ago(time.Second), Reason: reasonRejected, Answer: "401"}
	const limit = outbox.UnhealthyAfter
	for desc, test := range map[string]struct {
		state  outbox.EndpointState
		status metav1.ConditionStatus
		reason string
		since  time.Time
	}{
		"nothing yet":              {outbox.EndpointState{}, "", "", time.Time{}},
		"delivered":                {outbox.EndpointState{HealthySince: ago(time.Hour)}, metav1.ConditionTrue, reasonHealthy, ago(time.Hour)},
		"failing for a while":      {outbox.EndpointState{HealthySince: ago(time.Hour), FailingSince: ago(limit - 1), LastFailure: timeout}, metav1.ConditionTrue, reasonHealthy, ago(time.Hour)},
		"failing for five minutes": {outbox.EndpointState{HealthySince: ago(time.Hour), FailingSince: ago(limit), LastFailure: timeout}, metav1.ConditionFalse, reasonTimeout, now},
		"failing from the start":   {outbox.EndpointState{FailingSince: ago(limit - 1), LastFailure: timeout}, metav1.ConditionUnknown, reasonRetrying, ago(limit - 1)},
		"rejected":                 {outbox.EndpointState{FailingSince: ago(2), PermanentSince: ago(1), LastFailure: rejected}, metav1.ConditionFalse, reasonRejected, ago(1)},
		"rejected after the limit": {outbox.EndpointState{FailingSince: ago(2 * limit), PermanentSince: ago(1), LastFailure: rejected}, metav1.ConditionFalse, reasonRejected, ago(limit)},
		"changed":                  {outbox.EndpointState{ChangedAt: ago(1)}, metav1.ConditionUnknown, reasonEndpointChanged, ago(1)},
		"gone":                     {outbox.EndpointState{DisabledAt: ago(1), Cause: outbox.EndpointGone, FailingSince: ago(2)}, metav1.ConditionFalse, reasonEndpointGone, ago(1)},
		"disabled":                 {outbox.EndpointState{DisabledAt: ago(1), Cause: outbox.EndpointFailing, FailingSince: ago(120 * time.Hour)}, metav1.ConditionFalse, reasonEndpointDisabled, ago(1)},
	} {
		got := newHealth(endpoints.Endpoint{URL: "https://shop.example"}, test.state, now)
		if got.Status != test.status || got.Reason != test.reason || !got.Since.Equal(test.since) || (got.Message == "") != (test.reason == "") {
			t.Errorf("%s: %+v", desc, got)
		}
		if got := newHealth(endpoints.Endpoint{}, test.state, now); got != (Health{}) {
			t.Errorf("%s, without a webhook: %+v", desc, got)
		}
	}
}

// Every kind of failure has a reason of its own that a person can read.
func TestFailureReason_HasAMessage(t *testing.T) {
	for _, reason := range delivery.Reasons() {
		if reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted {
			continue // no failure
		}
		for _, status := range []int{0, 400, 408, 425, 429, 500} {
			got, _ := FailureReason(delivery.Result{Reason: reason, Status: status})
			if messages[got] == "" || got == reasonDeliveryFailed && reason != delivery.ReasonUnsigned {
				t.Errorf("%s %d: %s %q", reason, status, got, messages[got])
			}
		}
	}
	for reason, message := range messages {
		const maxEventNote = 1024
		if len(message)+len(disabledHint)+len(retriedHint)+len(time.RFC3339) > maxEventNote {
			t.Errorf("the message of %s is too long for an event", reason)
		}
	}
}
