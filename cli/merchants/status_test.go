package merchants

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestList_LastUse(t *testing.T) {
	now := time.Now()
	used := func(ago time.Duration) keyStatus {
		return keyStatus{LastUsed: new(metav1.NewTime(now.Add(-ago)))}
	}
	for desc, test := range map[string]struct {
		keys []keyStatus
		want string
	}{
		"no key":                  {nil, "<none>"},
		"a key that was not used": {[]keyStatus{{}}, "<none>"},
		"one key":                 {[]keyStatus{used(3 * time.Hour)}, "3h"},
		"the latest of several":   {[]keyStatus{{}, used(5 * time.Hour), used(3 * time.Hour), used(4 * time.Hour), {}}, "3h"},
		"an old key":              {[]keyStatus{used(5 * time.Hour), {Previous: []v1alpha1.PreviousKey{{LastUsedTime: new(metav1.NewTime(now.Add(-4 * time.Hour)))}}}}, "4h"},
	} {
		var table strings.Builder
		list := merchantList{Items: []merchantStatus{{Name: "acme", Keys: test.keys}}}
		if err := list.writeTable(&table, now); err != nil {
			t.Fatal(err)
		}
		header, line, _ := strings.Cut(table.String(), "\n")
		if at := strings.Index(header, "LAST USE"); !strings.HasPrefix(line[at:], test.want+" ") {
			t.Errorf("%s:\n%s", desc, &table)
		}
	}
}

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
		key.Status.ObservedGeneration = test.observed
		next := strings.Join(newMerchantStatus(merchant, []v1alpha1.ApiKey{key}, time.Now()).Next, "\n")
		if !strings.Contains(next, test.want) || strings.Contains(next, refused) != test.refused {
			t.Errorf("%s: next:\n%s", name, next)
		}
	}
}

func TestStatus_One(t *testing.T) {
	now := time.Now()
	merchant := &v1alpha1.Merchant{}
	merchant.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	merchant.Status.Webhook = &v1alpha1.WebhookStatus{Dead: 1}
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: "198.51.100.0/24", Requests: 1}}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, nil, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 pending, 1 dead letter\n", "198.51.100.0/24, 1 request, "} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
		}
	}
}

// What only a key's own list refuses is said of the key: no change of the merchant's list would allow it.
func TestStatus_KeyAllowlistRefuses(t *testing.T) {
	now := time.Now()
	key := v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Name: "till-1", UID: "till"}}
	key.Status.KeyID = published.ID(key.UID)
	merchant := &v1alpha1.Merchant{}
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", KeyID: published.ID(key.UID), Requests: 2, LastSeen: metav1.NewTime(now.Add(-5 * time.Minute))},
	}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, []v1alpha1.ApiKey{key}, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"198.51.100.0/24, 2 requests, the last 5m ago, not on the own list of key till-1", "till-1: add the networks that you know to spec.ipAllowlist of the ApiKey"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
		}
	}
	if unwanted := "Allowlist: add"; strings.Contains(screen.String(), unwanted) {
		t.Errorf("%q is in\n%s", unwanted, screen.String())
	}
}

func TestStatus_RefusedAddresses(t *testing.T) {
	now := time.Now()
	merchant := &v1alpha1.Merchant{}
	merchant.Spec.IPAllowlist, merchant.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", Requests: 212, LastSeen: metav1.NewTime(now.Add(-5 * time.Minute))},
	}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, nil, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"203.0.113.0/24 (report only)", "198.51.100.0/24, 212 requests, the last 5m ago", "add the networks that you know to spec.ipAllowlist"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
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
