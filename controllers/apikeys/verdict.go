package apikeys

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// conflictRecheck is how often a taken name or digest is looked at again: nothing tells when somebody
// else's object goes away.
const conflictRecheck = time.Minute

// verdict says what stands in the way, the first thing that does, or else that nothing does.
func verdict(f facts) subject.Outcome {
	for _, obstacle := range []func(facts) (subject.Outcome, bool){
		newerVersion, anothersRecord, merchantMissing, digestClaimed, tooManyDigests, digestReplaced, digestUsed, nameTaken,
	} {
		if outcome, applies := obstacle(f); applies {
			return outcome
		}
	}
	return subject.Ready("The data plane knows the key in its present form")
}

// newerVersion: an operator of an older version must not undo what a newer one knows.
func newerVersion(f facts) (subject.Outcome, bool) {
	c, _ := f.claimOf()
	return subject.Stalled(v1alpha1.ReasonNewerVersion,
		"A published object of this ApiKey was written by a newer operator; finish the upgrade of the operator"), f.newer || c.newer
}

// anothersRecord: two UIDs of one key id, or a record that somebody tampered with. Neither heals.
func anothersRecord(f facts) (subject.Outcome, bool) {
	if !f.recordOfAnother() {
		return subject.Outcome{}, false
	}
	return subject.Stalled(v1alpha1.ReasonSecretConflict,
		"The published Secret %s holds the record of another ApiKey; it is not touched", f.published.Name), true
}

func merchantMissing(f facts) (subject.Outcome, bool) {
	return subject.Waiting(v1alpha1.ReasonMerchantNotFound,
		"Merchant %s does not exist in this namespace", f.apiKey.Spec.MerchantRef.Name), f.merchantID == ""
}

// digestUsed: a key made elsewhere is needed for another Merchant of the old one's name, and
// spec.keyDigest still is of the former one's.
func digestUsed(f facts) (subject.Outcome, bool) {
	if f.digest == nil {
		return subject.Outcome{}, false
	}
	record, known := f.ownRecord()
	former := known && record.MerchantID != f.merchantID && sameDigest(f.digest, record.HandledDigest)
	return subject.Stalled(v1alpha1.ReasonKeyDigestUsed,
		"Merchant %s was created again, and spec.keyDigest is of a key of the former one; change it",
		f.apiKey.Spec.MerchantRef.Name), former
}

// nameTaken matters only when something is to be delivered.
func nameTaken(f facts) (subject.Outcome, bool) {
	if !f.targetTaken || wantedKey(f) == nil && misplaced(f) == nil {
		return subject.Outcome{}, false
	}
	return subject.Stalled(v1alpha1.ReasonSecretConflict,
		"Secret %s exists and is not this ApiKey's; delete it, or change spec.delivery.secretName", f.target()), true
}

func recheck(f facts, outcome subject.Outcome) time.Time {
	switch outcome.Reason {
	case v1alpha1.ReasonSecretConflict, v1alpha1.ReasonKeyDigestClaimed, v1alpha1.ReasonTooManyKeyDigests:
		return f.now.Add(conflictRecheck)
	}
	return time.Time{}
}

// dueRotation is when the schedule comes due; zero: there is none.
func dueRotation(f facts) time.Time {
	at, _ := nextRotation(f)
	return at
}
