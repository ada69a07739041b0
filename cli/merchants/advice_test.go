package merchants

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Silence is one thing, and no evidence another.
func TestAdvice_OldKey(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status       metav1.ConditionStatus // empty: the status has no condition
		used         *metav1.Time
		advice, cell string
	}{
		"in use":         {metav1.ConditionTrue, new(metav1.NewTime(now.Add(-5 * time.Minute))), ", and was used 5m ago", "5m"},
		"not in use":     {metav1.ConditionFalse, new(metav1.NewTime(now.Add(-5 * time.Hour))), ", and was not used within two hours", "5h"},
		"never used":     {metav1.ConditionFalse, nil, ", and was not used within two hours", "<none>"},
		"no evidence":    {metav1.ConditionUnknown, nil, "; it is unknown whether it is used", "unknown"},
		"no longer read": {metav1.ConditionUnknown, new(metav1.NewTime(now.Add(-5 * time.Hour))), "; it is unknown whether it is used", "5h"},
		"no condition":   {"", nil, "; it is unknown whether it is used", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			key := v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till"}}
			key.Status.PreviousKeys = []v1alpha1.PreviousKey{{ValidUntil: metav1.NewTime(now.Add(20 * time.Hour)), LastUsedTime: test.used}}
			if test.status != "" {
				key.Status.Conditions = []metav1.Condition{{Type: v1alpha1.OldKeyInUseCondition, Status: test.status}}
			}
			if got := adviceOnOldKey(&key, now); got != test.advice {
				t.Errorf("advice %q, want %q", got, test.advice)
			}
			status := keyStatus{Previous: key.Status.PreviousKeys, OldKeyInUse: test.status}
			if got := status.oldKeyUse(now); got != test.cell {
				t.Errorf("cell %q, want %q", got, test.cell)
			}
		})
	}
}

// What is to be done comes from conditions that take days to come about.
func TestAdvice(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme"}}
	merchant.Spec.State = v1alpha1.MerchantActive
	merchant.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	merchant.Status.Webhook = &v1alpha1.WebhookStatus{
		Dead: 3, LastDelivery: &v1alpha1.WebhookDelivery{Time: at(-2 * time.Hour)},
		LastFailure: &v1alpha1.WebhookFailure{Time: at(-time.Minute), Reason: "ServerError", StatusCode: 503},
	}
	merchant.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished},
		{Type: v1alpha1.RateLimitReducedCondition, Status: metav1.ConditionTrue, Message: "The platform's maximum is published."},
		{Type: v1alpha1.WebhookHealthyCondition, Status: metav1.ConditionFalse, Reason: "ServerError", Message: "The receiver answers with errors."},
	}
	key := v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till"}}
	key.Spec.MerchantRef.Name = "acme"
	key.Spec.ExpiresAt = new(at(3 * 24 * time.Hour))
	key.Status = v1alpha1.ApiKeyStatus{
		LastRotation: &v1alpha1.RotationStatus{Time: at(-90 * 24 * time.Hour), Cause: v1alpha1.RotationRecovery}, LastUsedTime: new(at(-5 * time.Minute)),
		PreviousKeys: []v1alpha1.PreviousKey{{ValidUntil: at(59 * time.Minute), LastUsedTime: new(at(-7 * time.Minute))}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSecretConflict, Message: "Choose another secretName."},
			{Type: v1alpha1.DeliveredCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotDelivered},
			{Type: v1alpha1.KeyLostCondition, Status: metav1.ConditionTrue, Message: "Give the new key to the merchant."},
			{Type: v1alpha1.ExpiringSoonCondition, Status: metav1.ConditionTrue, Message: "The key expires soon."},
			{Type: v1alpha1.OldKeyInUseCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOverlapEndsSoon},
		},
	}
	s := newMerchantStatus(merchant, []v1alpha1.ApiKey{key}, now)
	want := []string{
		"till: Choose another secretName.",
		"till: Give the new key to the merchant.",
		"till: no Secret has the key any more. If nobody else has it: kubectl merchant keys rotate till -n shops",
		"till: The key expires soon.",
		"till: an old key still works for 59m, and was used 7m ago. Give the new one to every till and server until then.",
		"Webhook: The receiver answers with errors.",
		"List the dead letters: kubectl merchant webhooks dead-letters --merchant shops/acme",
		"Rate limit: The platform's maximum is published.",
	}
	if strings.Join(s.Next, "\n") != strings.Join(want, "\n") {
		t.Errorf("next:\n%s", strings.Join(s.Next, "\n"))
	}
	var screen strings.Builder
	if err := s.writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ServerError, last delivery 120m ago, last failure 60s ago: ServerError 503", "3 dead letters", "90d   5m         3d     59m"} {
		if !strings.Contains(screen.String(), word) {
			t.Errorf("no %q in\n%s", word, &screen)
		}
	}
}

// Only what the operator has published gets an answer: a suspended merchant is served until then.
func TestAdvice_NotInForce(t *testing.T) {
	const refused = "Every request gets 403."
	for name, test := range map[string]struct {
		observed int64
		ready    metav1.Condition
		want     string
		refused  bool
	}{
		"in force":       {2, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished}, refused, true},
		"not handled":    {1, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished}, "has not handled the last change yet", false},
		"still accepted": {2, metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStillAccepted, Message: "the keys still work"}, "the keys still work", false},
	} {
		merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme", Generation: 2}}
		merchant.Spec.State = v1alpha1.MerchantSuspended
		test.ready.Type = v1alpha1.ReadyCondition
		merchant.Status = v1alpha1.MerchantStatus{ObservedGeneration: test.observed, Conditions: []metav1.Condition{test.ready}}
		key := v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", Generation: 2}}
		key.Spec.MerchantRef.Name = "acme"
		key.Status.ObservedGeneration = test.observed
		next := strings.Join(newMerchantStatus(merchant, []v1alpha1.ApiKey{key}, time.Now()).Next, "\n")
		if !strings.Contains(next, test.want) || strings.Contains(next, refused) != test.refused {
			t.Errorf("%s: next:\n%s", name, next)
		}
	}
}

// No key of a refused ApiKey works, also no old one.
func TestAdviceOnKey_RefusedOldKey(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	key := &v1alpha1.ApiKey{}
	key.Status.PreviousKeys = []v1alpha1.PreviousKey{{ValidUntil: metav1.NewTime(now.Add(time.Hour))}}
	key.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDisabled},
		{Type: v1alpha1.UsableCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDisabled},
	}
	if next := adviceOnKey(key, now); len(next) > 0 {
		t.Errorf("%q", next)
	}
}
