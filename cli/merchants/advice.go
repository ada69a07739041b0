package merchants

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// notHandled is said of an object whose last change the operator has not handled.
const notHandled = "the operator has not handled the last change yet, so what was in force before it still is. If that lasts, see whether an operator runs."

// advice is what to do next about a merchant with these keys of its own, the most urgent first. Conditions say what to do in their messages. A command
// is only advised if it is not refused now; all are the ApiKeys that there are.
func advice(s merchantStatus, merchant *v1alpha1.Merchant, own, all []v1alpha1.ApiKey, now time.Time) []string {
	next := []string{}
	add := func(format string, args ...any) { next = append(next, fmt.Sprintf(format, args...)) }
	next = append(next, adviceOnReady(s, merchant)...)
	if s.Refused != nil && slices.ContainsFunc(s.Refused.Refused, func(block v1alpha1.RefusedBlock) bool { return block.KeyID == "" }) {
		add("Allowlist: add the networks that you know to spec.ipAllowlist; if you do not know one, rotate the keys")
	}
	// A key of a merchant that is suspended, closed or being deleted would be refused.
	active := s.State == v1alpha1.MerchantActive && merchant.DeletionTimestamp == nil
	if len(s.Keys) == 0 && active {
		name := keys.FreeName(s.Name, "", func(name string) bool {
			return slices.ContainsFunc(all, func(key v1alpha1.ApiKey) bool { return key.Namespace == s.Namespace && key.Name == name })
		})
		add("Issue a key: kubectl merchant keys issue %s --merchant %s -n %s", name, s.Name, s.Namespace)
	}
	disabled := 0
	for i := range own {
		if s.Refused != nil && slices.ContainsFunc(s.Refused.Refused, func(block v1alpha1.RefusedBlock) bool {
			return block.KeyID == published.ID(own[i].UID)
		}) {
			add("%s: add the networks that you know to spec.ipAllowlist of the ApiKey; if you do not know one, rotate it", own[i].Name)
		}
		next = append(next, adviceOnKey(&own[i], now)...)
		if own[i].Spec.State == v1alpha1.ApiKeyDisabled {
			disabled++
		}
	}
	if disabled > 0 && disabled == len(own) && active {
		add("Every key is disabled. To enable one: %s", keys.EnableAdvice(&own[0], now))
	}
	if s.Webhook != nil && s.Webhook.Healthy != nil && !s.Webhook.Healthy.Status {
		add("Webhook: %s", s.Webhook.Healthy.Message)
	}
	if s.Webhook != nil && s.Webhook.Dead > 0 {
		add("List the dead letters: kubectl merchant webhooks dead-letters --merchant %s/%s", s.Namespace, s.Name)
	}
	if reduced := meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.RateLimitReducedCondition); reduced != nil {
		add("Rate limit: %s", reduced.Message)
	}
	return next
}

// adviceOnReady is about what the operator has published of the merchant, and its state.
func adviceOnReady(s merchantStatus, merchant *v1alpha1.Merchant) (next []string) {
	handled := merchant.Status.ObservedGeneration == merchant.Generation
	if !handled {
		next = append(next, "Merchant: "+notHandled)
	}
	if !s.Ready.Status {
		next = append(next, "Merchant: "+s.Ready.Message)
	}
	if s.State != v1alpha1.MerchantActive {
		resume := "To resume, set spec.state of the Merchant to Active."
		if handled && s.Ready.Status {
			resume = "Every request gets 403. " + resume
		}
		next = append(next, resume)
	}
	return next
}

// adviceOnKey is about one key. A disabled key, and one of a merchant that is not active, need nothing.
func adviceOnKey(key *v1alpha1.ApiKey, now time.Time) (next []string) {
	add := func(format string, args ...any) { next = append(next, key.Name+": "+fmt.Sprintf(format, args...)) }
	if key.Status.ObservedGeneration != key.Generation {
		add("%s", notHandled)
	}
	ready := newReadiness(key.Status.Conditions, v1alpha1.ReadyCondition)
	switch ready.Reason {
	case v1alpha1.ReasonPublished, v1alpha1.ReasonDisabled, v1alpha1.ReasonMerchantSuspended, v1alpha1.ReasonMerchantClosed:
	case v1alpha1.ReasonNotIssued:
		add("nobody has a key yet. Issue it in the console.")
	default:
		add("%s", ready.Message)
	}
	if lost := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.KeyLostCondition); lost != nil {
		add("%s", lost.Message)
	}
	delivered := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.DeliveredCondition)
	if _, blocked := keys.Obstacle(key); !blocked && delivered != nil && delivered.Reason == v1alpha1.ReasonNotDelivered {
		add("no Secret has the key any more. If nobody else has it: %s", keys.RotateAdvice(key))
	}
	for _, kind := range []string{v1alpha1.ExpiringSoonCondition, v1alpha1.RotatingSoonCondition} {
		if soon := meta.FindStatusCondition(key.Status.Conditions, kind); soon != nil {
			add("%s", soon.Message)
		}
	}
	refused := meta.IsStatusConditionFalse(key.Status.Conditions, v1alpha1.UsableCondition)
	if len(key.Status.PreviousKeys) > 0 && !refused && now.Before(key.Status.PreviousKeys[0].ValidUntil.Time) {
		add("an old key still works for %s%s. Give the new one to every till and server until then.",
			terminal.Until(&key.Status.PreviousKeys[0].ValidUntil, now), adviceOnOldKey(key, now))
	}
	return next
}

// adviceOnOldKey says whether an old key is used.
func adviceOnOldKey(key *v1alpha1.ApiKey, now time.Time) string {
	said := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.OldKeyInUseCondition)
	used := keyStatus{Previous: key.Status.PreviousKeys}.oldKeyUsed()
	switch {
	case said == nil || said.Status == metav1.ConditionUnknown:
		return "; it is unknown whether it is used"
	case said.Status == metav1.ConditionFalse:
		return ", and was not used within two hours"
	case used != nil:
		return ", and was used " + terminal.Ago(used, now) + " ago"
	}
	return ", and is used"
}
