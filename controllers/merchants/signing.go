package merchants

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// signing is what is to be done about the published signing secret.
type signing string

const (
	keepSigning     signing = ""         // it is as it should be
	issueSigning    signing = "issue"    // there is none
	reissueSigning  signing = "reissue"  // there was one, and nobody can know what it was
	rotateSigning   signing = "rotate"   // the trigger changed
	tidySigning     signing = "tidy"     // an overlap ended, or somebody edited what is around it
	withdrawSigning signing = "withdraw" // there is no webhook any more
)

// signingFor returns the first that applies. A usable record is adopted whatever else was lost: a new
// secret would make every event look forged until the merchant has taken it.
func signingFor(f facts) signing {
	switch {
	case f.newerSigning:
		return keepSigning
	case f.targetName() == "" && f.signing != nil:
		return withdrawSigning
	case f.targetName() == "":
		return keepSigning
	case f.record == nil && issuedBefore(f):
		return reissueSigning
	case f.record == nil:
		return issueSigning
	case rotationWanted(f):
		return rotateSigning
	case !tidy(f):
		return tidySigning
	default:
		return keepSigning
	}
}

// issuedBefore reports whether there is a trace of an earlier signing secret.
func issuedBefore(f facts) bool {
	return f.signing != nil || f.target != nil || len(f.delivered) > 0 || f.merchant.Status.WebhookSecretName != ""
}

// rotationWanted: any change of the trigger. While the new secret could not be delivered, the merchant
// would be cut off when the overlap of the old one ends; so the rotation waits.
func rotationWanted(f facts) bool {
	return f.merchant.Spec.Webhook.RotationTrigger != f.record.HandledTrigger && !f.targetTaken
}

// tidy reports whether the published Secret is as the record in it should be written.
func tidy(f facts) bool {
	want, err := published.EncodeWebhook(f.namespace, asSpecified(f))
	return err == nil && f.signing.Labels[published.Label] == published.LabelWebhook &&
		sameData(f.signing.Data, want.Data)
}

// asSpecified returns the record with all that follows from the Merchant and the time.
func asSpecified(f facts) published.WebhookRecord {
	record := *f.record
	record.Source = published.Source{Namespace: f.merchant.Namespace, Name: f.merchant.Name, UID: f.merchant.UID}
	record.Retired = record.RetiredAt(f.now)
	return record
}

// signed returns the record as the plan makes it.
func (p plan) signed() published.WebhookRecord {
	switch p.sign {
	case issueSigning, reissueSigning:
		return published.NewWebhookRecord(p.merchant, p.now)
	case rotateSigning:
		return asSpecified(p.facts).Rotated(p.merchant.Spec.Webhook.RotationTrigger, p.now)
	default:
		return asSpecified(p.facts)
	}
}

// overlapEnd is when the first of the retired secrets stops signing; zero: there is none.
func overlapEnd(f facts) time.Time {
	var first time.Time
	if f.record != nil {
		for _, retired := range f.record.RetiredAt(f.now) {
			if first.IsZero() || retired.ValidUntil.Before(first) {
				first = retired.ValidUntil
			}
		}
	}
	return first
}
