package apikeys

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// plan is what to do for an ApiKey, because of the facts.
type plan struct {
	facts

	// newKey replaces the current key; nil: keep it. After a new key nothing else is done in this reconciliation.
	newKey *newKey
	// claims are written before anything else.
	claims []claimState
	// repair is the record to write; nil: it is up to date.
	repair *published.KeyRecord
	// remove are delivered Secrets to delete.
	remove []removal
	// move is the Secret whose key moves to another name; nil: none.
	move *delivered
	// confirm: the API server must confirm what people are warned of.
	confirm bool
}

// idle reports whether there is nothing to do.
func (p *plan) idle() bool {
	return p.newKey == nil && p.repair == nil && len(p.claims) == 0 && len(p.remove) == 0 && p.move == nil && !p.confirm
}

// decide is pure. What only restricts the key was written before: see Restriction.
func decide(f facts) *plan {
	_, blocked := obstacle(f)
	p := &plan{facts: f}
	if !blocked {
		p.newKey = wantedKey(f)
	}
	p.claims = missingClaims(f, p.newKey != nil) // not while a rotation is deferred: a claim stays, and there are few
	if p.newKey != nil {
		return p
	}
	if !blocked {
		p.move = misplaced(f)
	}
	p.confirm = unconfirmed(f)
	p.repair = repair(f)
	p.remove = removals(f)
	return p
}

// ignoresTrigger reports whether the plan handles a trigger that rotates nothing: a person has changed it for nothing.
func (p *plan) ignoresTrigger() bool { return p.digest != nil && triggerWithoutEffect(p.facts) }

// rule returns an outcome, if it applies.
type rule func(facts) (outcome conditions.Outcome, applies bool)

// first returns the outcome of the first rule that applies; ok is false if none does.
func first(f facts, rules ...rule) (outcome conditions.Outcome, ok bool) {
	for _, rule := range rules {
		if outcome, ok = rule(f); ok {
			return outcome, true
		}
	}
	return conditions.Outcome{}, false
}

// obstacle returns what prevents that a key is issued or moved; ok is false if nothing does.
func obstacle(f facts) (outcome conditions.Outcome, ok bool) {
	return first(f, recordEnding, newerVersion, revokedByNewer, anothersRecord, namespaceFull, merchantMissing, digestClaimed, tooManyDigests, namespaceClaimed,
		digestReplaced, digestUsed, nameTaken, nameEnding)
}

// outcomeFor returns whether the spec is in force. usable returns whether the key is accepted.
func outcomeFor(f facts) conditions.Outcome {
	if outcome, blocked := obstacle(f); blocked {
		return outcome
	}
	if outcome, applies := first(f, merchantUnpublished, rotationDeferred, disabled, expired, merchantInactive, notIssued); applies {
		return outcome
	}
	return conditions.Ready("API key is published and up to date")
}

// usable returns the condition Usable: whether requests with the key are accepted. Only what is published decides that, so
// a key in force is usable while something is in the way of the next one.
func usable(f facts, outcome conditions.Outcome) metav1.Condition {
	say := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.UsableCondition, Status: status, Reason: reason, Message: message}
	}
	record, known := f.ownRecord()
	if outcome.Reason == v1alpha1.ReasonStillAccepted && (!known || record.Usable(f.now)) && f.merchantState == v1alpha1.MerchantActive {
		return say(metav1.ConditionTrue, outcome.Reason, outcome.Message)
	}
	if f.incomplete {
		return say(metav1.ConditionUnknown, outcome.Reason, "It is unknown whether the key is accepted: see condition Ready")
	}
	if _, ended := first(f, disabled, expired); ended && known && record.Usable(f.now) {
		return say(metav1.ConditionTrue, outcome.Reason, "The key still works: its end is not published yet")
	}
	refused, applies := first(f, anothersRecord, namespaceFull, merchantMissing, disabled, expired, merchantInactive, merchantUnpublished, revokedByNewer,
		digestClaimed, tooManyDigests, namespaceClaimed, digestReplaced, digestUsed, notIssued)
	switch {
	case applies:
		return say(metav1.ConditionFalse, refused.Reason, refused.Message)
	case f.newer:
		return say(metav1.ConditionUnknown, v1alpha1.ReasonNewerVersion, "A newer version of the operator wrote the published key")
	case !known || record.MerchantID != f.merchantID:
		return say(metav1.ConditionFalse, outcome.Reason, outcome.Message)
	}
	return say(metav1.ConditionTrue, v1alpha1.ReasonPublished, "Requests with the key are accepted")
}

func disabled(f facts) (conditions.Outcome, bool) {
	return conditions.Unusable(v1alpha1.ReasonDisabled, "spec.state is Disabled: the key gets 401"),
		f.apiKey.Spec.State == v1alpha1.ApiKeyDisabled
}

// notIssued is an outcome with Ready=True, because the operator has nothing left to do, and a pipeline must not wait for a person.
func notIssued(f facts) (conditions.Outcome, bool) {
	record, known := f.ownRecord()
	return conditions.Unusable(v1alpha1.ReasonNotIssued,
		"API key is published, and nobody has a key yet: delivery.policy is None. Rotate it over HTTP to get one, for example in the console"), known && !record.Issued()
}

func expired(f facts) (conditions.Outcome, bool) {
	end := expiry(f)
	return conditions.Unusable(v1alpha1.ReasonExpired,
			"The key expired at %s and gets 401; set a later spec.expiresAt, or delete the ApiKey", end.Format(time.RFC3339)),
		!end.IsZero() && !f.now.Before(end)
}

func merchantInactive(f facts) (conditions.Outcome, bool) {
	reason := v1alpha1.ReasonMerchantSuspended
	if f.merchantState == v1alpha1.MerchantClosed {
		reason = v1alpha1.ReasonMerchantClosed
	}
	return conditions.Unusable(reason, "Merchant %s is %s: the key gets 403 until spec.state of the Merchant is Active and in force",
		f.apiKey.Spec.MerchantRef.Name, f.merchantState), f.merchantState != v1alpha1.MerchantActive && f.merchantState != ""
}

// merchantUnpublished: a key without its published Merchant opens nothing.
func merchantUnpublished(f facts) (conditions.Outcome, bool) {
	outcome := conditions.Waiting(v1alpha1.ReasonMerchantNotPublished,
		"Merchant %s is not published yet: the key gets 401; see condition Ready of the Merchant", f.apiKey.Spec.MerchantRef.Name)
	outcome.Silent = true // the Merchant has the warning, if that lasts
	return outcome, f.merchantState == ""
}

// expiry is when the key expires; zero: never.
func expiry(f facts) time.Time {
	if f.apiKey.Spec.ExpiresAt == nil {
		return time.Time{}
	}
	return f.apiKey.Spec.ExpiresAt.UTC()
}

// recordEnding: the key opens nothing, and a new one can be published only when the Secret is gone.
func recordEnding(f facts) (conditions.Outcome, bool) {
	if f.ending.IsZero() {
		return conditions.Outcome{}, false
	}
	return tenantsecret.Ending("Secret "+f.secret.Name+" of the credentials namespace, so that the key gets 401,", "", f.ending, f.now), true
}

// newerVersion: an older operator must not change what a newer one wrote, but for revoking it.
func newerVersion(f facts) (conditions.Outcome, bool) {
	c, _ := f.specClaim()
	return conditions.Stalled(v1alpha1.ReasonNewerVersion,
		"A newer version of the operator wrote a published object of this ApiKey; finish the upgrade of the operator"), f.newer || c.newer
}

// revokedByNewer: the record can be read, but not the reason of its revocation.
func revokedByNewer(f facts) (conditions.Outcome, bool) {
	return conditions.Stalled(v1alpha1.ReasonNewerVersion,
			"A newer version of the operator revoked the key, which gets 401; finish the upgrade of the operator"),
		f.record != nil && f.record.Final().Revoked
}

// anothersRecord: two UIDs have the same key id, or somebody changed the record. A person must decide.
func anothersRecord(f facts) (conditions.Outcome, bool) {
	if !f.recordOfAnother() {
		return conditions.Outcome{}, false
	}
	return conditions.Stalled(v1alpha1.ReasonSecretConflict,
		"Published Secret %s holds the record of another ApiKey and was not changed", f.secret.Name), true
}

// namespaceFull: an ApiKey that was never published can wait, so that the deletions to remember do not grow without end.
func namespaceFull(f facts) (conditions.Outcome, bool) {
	return reconciler.Full("ApiKey", f.fullUntil), !f.fullUntil.IsZero()
}

// merchantWait is how long an ApiKey waits for its Merchant, because a pipeline applies them in any order. Then it is
// Stalled, and the names in the message are updated at this interval.
const merchantWait = 10 * time.Minute

// maxNames is the maximum number of names in a message.
const maxNames = 10

func merchantMissing(f facts) (conditions.Outcome, bool) {
	if f.merchantID != "" {
		return conditions.Outcome{}, false
	}
	missing := fmt.Sprintf("Merchant %s does not exist in namespace %s", f.apiKey.Spec.MerchantRef.Name, f.apiKey.Namespace)
	if f.secret != nil { // it was issued for a Merchant, of which this name is all that is left
		missing = fmt.Sprintf("Merchant %s was deleted from namespace %s: the key gets 401 permanently, also if the Merchant is created again",
			f.apiKey.Spec.MerchantRef.Name, f.apiKey.Namespace)
	}
	if f.merchantMissingFor() < merchantWait {
		return conditions.Waiting(v1alpha1.ReasonMerchantNotFound, "%s; waiting for it", missing), true
	}
	there := "there are no Merchants"
	if n := len(f.merchants); n > 0 {
		there = "its Merchants are " + strings.Join(f.merchants[:min(n, maxNames)], ", ")
		if n > maxNames {
			there += fmt.Sprintf(" and %d more", n-maxNames)
		}
	}
	return conditions.Stalled(v1alpha1.ReasonMerchantNotFound,
		"%s; %s. Create the Merchant, or another ApiKey with the right merchantRef", missing, there), true
}

// merchantMissingFor is how long the status has reported the missing Merchant.
func (f facts) merchantMissingFor() time.Duration {
	for _, c := range f.apiKey.Status.Conditions {
		switch {
		case c.Reason != v1alpha1.ReasonMerchantNotFound:
		case c.Type == v1alpha1.StalledCondition:
			return merchantWait
		case c.Type == v1alpha1.ReconcilingCondition:
			return f.now.Sub(c.LastTransitionTime.Time)
		}
	}
	return 0
}

// digestUsed: the Merchant was created again, and spec.keyDigest is still the digest of the former one.
func digestUsed(f facts) (conditions.Outcome, bool) {
	if f.digest == nil {
		return conditions.Outcome{}, false
	}
	record, known := f.ownRecord()
	former := known && record.MerchantID != f.merchantID && sameDigest(f.digest, record.HandledDigest)
	return conditions.Stalled(v1alpha1.ReasonKeyDigestUsed,
		"Merchant %s was deleted and created again, and spec.keyDigest is of a key of the former Merchant; set the digest of another key",
		f.apiKey.Spec.MerchantRef.Name), former
}

// nameTaken matters only if there is something to deliver.
func nameTaken(f facts) (conditions.Outcome, bool) {
	if !f.targetTaken || wantedKey(f) == nil && misplaced(f) == nil {
		return conditions.Outcome{}, false
	}
	return conditions.Stalled(v1alpha1.ReasonSecretConflict,
		"Secret %s %s; choose another spec.delivery.secretName", f.target(), f.targetHolder), true
}

// nameEnding: a key that is written into a Secret that is being deleted would go with it.
func nameEnding(f facts) (conditions.Outcome, bool) {
	if f.targetEnding.IsZero() || wantedKey(f) == nil && misplaced(f) == nil {
		return conditions.Outcome{}, false
	}
	return tenantsecret.Ending("Secret "+f.target(), ", or choose another spec.delivery.secretName", f.targetEnding, f.now), true
}

// conflictRecheck is how often a taken name or digest is checked again, because no watch reports when another owner's
// object is deleted.
const conflictRecheck = time.Minute

// nextCheck returns the time until the next check is due; 0: never.
func nextCheck(f facts, outcome conditions.Outcome) time.Duration {
	rotation, _ := nextRotation(f)
	times := []time.Time{
		rotation, retentionEnd(f), overlapEnd(f), cleanupTime(f), expiry(f), triggerLimit(f).At, f.fullUntil,
		reconciler.Recheck(f.now, f.clockWrong, rotation, retentionEnd(f), cleanupTime(f)),
	}
	switch outcome.Reason {
	case v1alpha1.ReasonMerchantNotFound:
		left := merchantWait - f.merchantMissingFor()
		if left <= 0 {
			left = merchantWait
		}
		times = append(times, f.now.Add(left))
	case v1alpha1.ReasonSecretConflict, v1alpha1.ReasonKeyDigestClaimed, v1alpha1.ReasonTooManyKeyDigests:
		times = append(times, f.now.Add(conflictRecheck))
	case v1alpha1.ReasonTooManyDeleted:
		times = append(times, f.now.Add(reconciler.HeldRecheck))
	}
	times = append(times, expiryAhead(f).starts(), rotationAhead(f).starts())
	times = append(times, oldKeyChecks(f)...)
	return reconciler.Until(f.now, times...)
}
