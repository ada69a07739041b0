package merchants

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// plan is what is to be done about a Merchant.
type plan struct {
	facts
	outcome subject.Outcome
	// publish is the ConfigMap to be written; nil: it is there as it should be.
	publish *corev1.ConfigMap
	// sign says what is to be done about the published signing secret.
	sign signing
	// deliver says that the merchant's copy is to be written.
	deliver bool
	// remove are delivered Secrets that are of no use any more.
	remove []removal
}

// idle reports whether nothing is to be done.
func (p plan) idle() bool {
	return p.publish == nil && p.sign == keepSigning && !p.deliver && len(p.remove) == 0
}

// decide is pure. Its error says that the Merchant has no published form.
func decide(f facts) (plan, error) {
	p := plan{facts: f, outcome: verdict(f)}
	want, err := published.EncodeMerchant(f.namespace, published.NewMerchantRecord(f.merchant))
	if err != nil {
		return p, fmt.Errorf("publish the Merchant: %w", err)
	}
	if f.published == nil || !f.newer && !says(f.published, want) {
		p.publish = want
	}
	p.sign = signingFor(f)
	p.deliver = needsDelivery(f, p.sign)
	p.remove = removals(f)
	return p, nil
}

// says reports whether the ConfigMap holds what is wanted and nothing else. Other labels do not count.
func says(got, want *corev1.ConfigMap) bool {
	return got.Labels[published.Label] == want.Labels[published.Label] &&
		maps.Equal(got.Data, want.Data) && len(got.BinaryData) == 0
}

// verdict says what stands in the way, or else that nothing does. What a newer operator wrote stays. A taken name stands in the way of
// nothing but the merchant's copy.
func verdict(f facts) subject.Outcome {
	if f.newer || f.newerSigning {
		return subject.Stalled(v1alpha1.ReasonNewerVersion,
			"A published object of this Merchant was written by a newer operator; finish the upgrade of the operator")
	}
	if f.targetTaken {
		return subject.Stalled(v1alpha1.ReasonSecretConflict,
			"Secret %s exists and is not this Merchant's; delete it, or change spec.webhook.secretName. Its events are signed, with a secret it cannot get",
			f.targetName())
	}
	return subject.Ready("The data plane knows the Merchant in its present form")
}

// conflictRecheck is how often a taken name is looked at again: nothing tells when somebody else's
// Secret goes away.
const conflictRecheck = time.Minute

// nextLook is when time alone will give something to do; zero: never.
func nextLook(f facts, outcome subject.Outcome) time.Time {
	var next time.Time
	for _, at := range []time.Time{overlapEnd(f), recheck(f, outcome)} {
		if at.After(f.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func recheck(f facts, outcome subject.Outcome) time.Time {
	if outcome.Reason != v1alpha1.ReasonSecretConflict {
		return time.Time{}
	}
	return f.now.Add(conflictRecheck)
}
