package apikeys

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// plan is what is to be done about an ApiKey.
type plan struct {
	facts
	outcome conditions.Outcome

	// newKey replaces the key in force; nil: it stays. Then nothing else is to be done in this pass.
	newKey *newKey
	// first says that there was none before, as far as the caches know.
	first bool
	// claims are those to be written, before anything else.
	claims []claimState
	// repair is the record as it should be; nil: it is.
	repair *published.KeyRecord
	// remove are delivered Secrets that are of no use any more.
	remove []removal
	// move is the Secret whose key is to be delivered under another name; nil: none.
	move *delivered
	// warnings are what a person should know.
	warnings []warning
}

// idle reports whether nothing is to be done.
func (p *plan) idle() bool {
	return p.newKey == nil && p.repair == nil && len(p.claims) == 0 && len(p.remove) == 0 && p.move == nil && len(p.warnings) == 0
}

// decide is pure. A key that cannot be replaced now goes on as it is, with its state and expiry kept
// in line: what prevents a new key must not keep a person from disabling the old one.
func decide(f facts) *plan {
	p := &plan{facts: f, outcome: outcomeFor(f)}
	p.claims = missingClaims(f, p.outcome.IsReady())
	if p.outcome.IsReady() {
		if p.newKey = wantedKey(f); p.newKey != nil {
			return p
		}
		p.move = misplaced(f)
		p.warnings = warningsFor(f)
	}
	p.repair = repair(f)
	p.remove = removals(f)
	return p
}

// outcomeFor says what prevents a new key, the first thing that does, or else that nothing does.
func outcomeFor(f facts) conditions.Outcome {
	for _, rule := range []func(facts) (conditions.Outcome, bool){
		newerVersion, anothersRecord, merchantMissing, digestClaimed, tooManyDigests, digestReplaced, digestUsed, nameTaken,
	} {
		if outcome, applies := rule(f); applies {
			return outcome
		}
	}
	return conditions.Ready("API key is published and up to date")
}

// newerVersion: an operator of an older version must not undo what a newer one knows.
func newerVersion(f facts) (conditions.Outcome, bool) {
	c, _ := f.claimOf()
	return conditions.Stalled(v1alpha1.ReasonNewerVersion,
		"A newer version of the operator wrote a published object of this ApiKey; finish the upgrade of the operator"), f.newer || c.newer
}

// anothersRecord: two UIDs of one key id, or a record that somebody tampered with. Neither heals.
func anothersRecord(f facts) (conditions.Outcome, bool) {
	if !f.recordOfAnother() {
		return conditions.Outcome{}, false
	}
	return conditions.Stalled(v1alpha1.ReasonSecretConflict,
		"Published Secret %s holds the record of another ApiKey and was not changed", f.published.Name), true
}

func merchantMissing(f facts) (conditions.Outcome, bool) {
	return conditions.Waiting(v1alpha1.ReasonMerchantNotFound,
		"Merchant %s does not exist in this namespace", f.apiKey.Spec.MerchantRef.Name), f.merchantID == ""
}

// digestUsed: an externally generated key is needed for another Merchant of the old one's name, and
// spec.keyDigest is still that of the former one.
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

// nameTaken matters only when something is to be delivered.
func nameTaken(f facts) (conditions.Outcome, bool) {
	if !f.targetTaken || wantedKey(f) == nil && misplaced(f) == nil {
		return conditions.Outcome{}, false
	}
	return conditions.Stalled(v1alpha1.ReasonSecretConflict,
		"Secret %s exists and does not belong to this ApiKey; delete it, or change spec.delivery.secretName", f.target()), true
}

// conflictRecheck is how often a taken name or digest is checked again: nothing reports that somebody else's object is
// gone.
const conflictRecheck = time.Minute

// nextCheck is the time until there will be something to do; 0: never.
func nextCheck(f facts, outcome conditions.Outcome) time.Duration {
	rotation, _ := nextRotation(f)
	moments := []time.Time{rotation, retentionEnd(f), overlapEnd(f)}
	switch outcome.Reason {
	case v1alpha1.ReasonSecretConflict, v1alpha1.ReasonKeyDigestClaimed, v1alpha1.ReasonTooManyKeyDigests:
		moments = append(moments, f.now.Add(conflictRecheck))
	}
	for _, u := range upcomingFor(f) {
		moments = append(moments, u.starts())
	}
	return reconciler.Until(f.now, moments...)
}
