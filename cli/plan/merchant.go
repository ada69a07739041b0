package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// merchantEffects returns the effects of a change of a Merchant.
func (s State) merchantEffects(o Object[v1alpha1.Merchant]) []Effect {
	if o.Refused != "" {
		o.After = o.Corrected
	}
	if o.Before == nil || o.Unbuilt != "" || o.After == nil && o.Refused != "" {
		return nil
	}
	names, used := s.keysOfMerchant(o)
	if o.After == nil {
		return merchantDeleted(o.Before, names, used)
	}
	var effects []Effect
	if !o.Before.DeletionTimestamp.IsZero() {
		effects = append(effects, Effect{Type: "Deleting", Severity: Ends, Message: "This Merchant is being deleted; applied again after that, it is another merchant."})
	}
	c := merchantChange{before: o.Before, after: o.After}
	return slices.Concat(effects, c.state(names, used), c.allowlist(), c.limits(), c.sessions(), c.webhook(), c.unfinished())
}

// keysOfMerchant returns the live ApiKeys of a Merchant that may work, and when one of them was last used.
func (s State) keysOfMerchant(o Object[v1alpha1.Merchant]) (names []string, used *metav1.Time) {
	for _, key := range s.ApiKeys {
		if key.Before == nil || key.Namespace != o.Namespace || key.Before.Spec.MerchantRef.Name != o.Name {
			continue
		}
		names = append(names, key.Name)
		if at := key.Before.LastUse(); at != nil && (used == nil || used.Before(at)) {
			used = at
		}
	}
	return names, used
}

func merchantDeleted(m *v1alpha1.Merchant, keys []string, used *metav1.Time) []Effect {
	var effects []Effect
	if len(keys) > 0 {
		effects = append(effects, Effect{
			Type: "KeysEnd", Severity: Ends, LastUsedTime: used,
			Message: "The keys of " + list(keys) + " get 401 permanently, also if the Merchant is created again." + usedAt(used),
		})
	}
	if m.Spec.Webhook != nil {
		effects = append(effects, Effect{Type: "WebhookEnds", Severity: Ends, Message: "The signing secret ends, and no event is sent any more." + waiting(m, " dropped")})
	}
	message := "Sessions that are still open end: a payment of one is to be refunded."
	if m.Spec.State != v1alpha1.MerchantClosed {
		message += " Set the state to Closed first, and delete the Merchant " + span(time.Duration(m.Spec.Sessions.LifetimeSeconds)*time.Second) + " later."
	}
	return append(effects, Effect{Type: "SessionsEnd", Severity: May, Message: message})
}

// waiting says how many events are, as far as status knows.
func waiting(m *v1alpha1.Merchant, become string) string {
	if m.Status.Webhook == nil || m.Status.Webhook.Pending <= 0 {
		return ""
	}
	return fmt.Sprintf(" %d events that wait are%s.", m.Status.Webhook.Pending, become)
}

// merchantChange is a Merchant that stays.
type merchantChange struct{ before, after *v1alpha1.Merchant }

func (c merchantChange) state(keys []string, used *metav1.Time) []Effect {
	before, after := c.before.Spec.State, c.after.Spec.State
	switch {
	case before == after:
		return nil
	case after == v1alpha1.MerchantActive:
		return []Effect{{Type: "MerchantResumes", Severity: Note, Message: "The keys of this Merchant work again."}}
	case before != v1alpha1.MerchantActive:
		return []Effect{{Type: "MerchantStays", Severity: Note, Message: "The keys of this Merchant get 403, as before."}}
	}
	which := "it has none"
	if len(keys) > 0 {
		which = list(keys)
	}
	return []Effect{{
		Type: "MerchantStops", Severity: Ends, LastUsedTime: used,
		Message: "All keys of this Merchant get 403: " + which + ". Open sessions can still be paid." + usedAt(used),
	}}
}

// allowlist compares what is accepted: with mode Report, any address is.
func (c merchantChange) allowlist() []Effect {
	before, beforeErr := accepted(c.before)
	after, afterErr := accepted(c.after)
	switch {
	case beforeErr != nil || afterErr != nil:
		return nil // the API server checks the blocks
	case after.Covers(before) && before.Covers(after):
		return nil
	case after.Covers(before):
		if len(after) == 0 {
			return []Effect{{Type: "AllowlistOpens", Severity: Note, Message: "Keys are accepted from any address."}}
		}
		return []Effect{{Type: "AllowlistWidens", Severity: Note, Message: "Keys are accepted from more addresses."}}
	}
	message := "Keys get 401 from addresses that are accepted now."
	if seen := c.blocked(after); len(seen) > 0 {
		message += " Of the last day's blocks that the present list does not allow, these stay out: " + list(seen) + "."
	} else if c.before.Spec.IPAllowlistMode == v1alpha1.IPAllowlistReport {
		message += " status.allowlist has no such address of the last day."
	}
	if c.before.Spec.IPAllowlistMode != v1alpha1.IPAllowlistReport || len(c.before.Spec.IPAllowlist) == 0 {
		message += " Roll it out with ipAllowlistMode Report first."
	}
	return []Effect{{Type: "AllowlistNarrows", Severity: May, Message: message}}
}

// accepted is empty if any address is accepted.
func accepted(m *v1alpha1.Merchant) (allowlist.List, error) {
	if m.Spec.IPAllowlistMode == v1alpha1.IPAllowlistReport {
		return nil, nil
	}
	return allowlist.Parse(m.Spec.IPAllowlist)
}

// blocked are the blocks of status.allowlist that the list does not allow.
func (c merchantChange) blocked(list allowlist.List) []string {
	if c.before.Status.Allowlist == nil {
		return nil
	}
	var blocks []string
	for _, refused := range c.before.Status.Allowlist.Refused {
		if block, err := netip.ParsePrefix(refused.Block); err == nil && refused.KeyID == "" && !list.CoversBlock(block) {
			blocks = append(blocks, block.String())
		}
	}
	return blocks
}

func (c merchantChange) limits() []Effect {
	before, after := c.before.Spec.RateLimit, c.after.Spec.RateLimit
	if after.RequestsPerSecond >= before.RequestsPerSecond && after.Burst >= before.Burst {
		return nil
	}
	return []Effect{{
		Type: "LimitFalls", Severity: May,
		Message: fmt.Sprintf("Requests above %d a second, or above %d at once, get 429; now that is %d and %d.", after.RequestsPerSecond, after.Burst, before.RequestsPerSecond, before.Burst),
	}}
}

func (c merchantChange) sessions() (effects []Effect) {
	before, after := c.before.Spec, c.after.Spec
	if before.Currency != after.Currency {
		effects = append(effects, Effect{Type: "CurrencyChanges", Severity: Note, Message: fmt.Sprintf("Amounts of new sessions are in %s instead of %s.", after.Currency, before.Currency)})
	}
	if before.Sessions.IdempotencyMismatch != after.Sessions.IdempotencyMismatch && after.Sessions.IdempotencyMismatch == v1alpha1.IdempotencyMismatchReject {
		effects = append(effects, Effect{Type: "MismatchRejected", Severity: May, Message: "A reused Idempotency-Key with another body gets 400."})
	}
	return effects
}

func (c merchantChange) webhook() []Effect {
	before, after := c.before.Spec.Webhook, c.after.Spec.Webhook
	switch {
	case before == nil:
		return nil
	case after == nil:
		return []Effect{{
			Type: "WebhookEnds", Severity: Ends,
			Message: "No event is sent any more, and Secret " + quoted(signingSecret(c.before)) + " is deleted. Events wait 24 hours for another webhook." + waiting(c.before, " among them"),
		}}
	}
	var effects []Effect
	if before.URL != after.URL {
		effects = append(effects, Effect{Type: "WebhookMoves", Severity: Note, Message: "Events are sent to the new URL." + waiting(c.before, " sent there too")})
	}
	if before.RotationTrigger != after.RotationTrigger {
		effects = append(effects, Effect{Type: "SigningSecretRotates", Severity: Ends, Message: "The signing secret is replaced. For 24 hours events are signed with both."})
	}
	if from, to := signingSecret(c.before), signingSecret(c.after); from != to {
		effects = append(effects, Effect{Type: "SecretDeleted", Severity: Ends, Message: "Secret " + quoted(from) + " is deleted: the signing secret moves to Secret " + quoted(to) + "."})
	}
	if ended := unsubscribed(before.Events, after.Events); len(ended) > 0 {
		effects = append(effects, Effect{Type: "EventsEnd", Severity: Ends, Message: "Events of these types are not sent any more: " + list(ended) + "."})
	}
	return effects
}

func signingSecret(m *v1alpha1.Merchant) string {
	if m.Spec.Webhook.SecretName != "" {
		return m.Spec.Webhook.SecretName
	}
	return m.Name + "-webhook"
}

func unsubscribed(before, after []v1alpha1.WebhookEvent) (ended []string) {
	for _, event := range v1alpha1.WebhookEvents() {
		if event.Listed(before) && !event.Listed(after) {
			ended = append(ended, string(event))
		}
	}
	return ended
}

func (c merchantChange) unfinished() []Effect {
	if c.before.Status.ObservedGeneration != c.before.Generation {
		return []Effect{{Type: "StatusBehind", Severity: May, Message: "The operator has not handled the present spec yet, so this plan is of an older status."}}
	}
	return nil
}
